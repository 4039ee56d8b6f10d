// softmax and log_softmax over the last axis, stable for any finite input, and their derivatives in terms of the
// result.
//   softmax_grad(dy, y) -> dx = y * (dy - sum(dy * y))
//   log_softmax_grad(dy, y) -> dx = dy - exp(y) * sum(dy)
#pragma once

#include "ir/builder.h"

namespace lathe {

Value softmax(Value x);                     // over the last axis
Value log_softmax(Value x);                 // over the last axis
Value softmax_grad(Value dy, Value y);      // of softmax: dy and its result y
Value log_softmax_grad(Value dy, Value y);  // of log_softmax: dy and its result y
extern const OpDef softmax_op;
extern const OpDef log_softmax_op;
extern const OpDef softmax_grad_op;
extern const OpDef log_softmax_grad_op;

}  // namespace lathe
