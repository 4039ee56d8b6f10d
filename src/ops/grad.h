// grad: derivatives of a scalar with respect to other values of the graph. Not executable: the `autodiff` pass expands
// it, innermost first, so a grad of something that holds a grad is a second derivative.
#pragma once

#include "ir/builder.h"

namespace lathe {

Values grad(Value loss, ArgValues wrt);  // derivatives of the scalar `loss`, one per value of `wrt`
extern const OpDef grad_op;

}  // namespace lathe
