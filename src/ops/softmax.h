// softmax and log_softmax over the last axis, stable for any finite input, and their derivatives in terms of the
// result.
//   softmax_grad(dy, y) -> dx = y * (dy - sum(dy * y))
//   log_softmax_grad(dy, y) -> dx = dy - exp(y) * sum(dy)
#pragma once

#include "ir/builder.h"

namespace lathe {

Value softmax(Value x);
Value log_softmax(Value x);
Value softmax_grad(Value dy, Value y);
Value log_softmax_grad(Value dy, Value y);
extern const OpDef softmax_op;
extern const OpDef log_softmax_op;
extern const OpDef softmax_grad_op;
extern const OpDef log_softmax_grad_op;

}  // namespace lathe
