// log_sum_exp: log(sum(exp(x))) over axes, stable for any finite input; -inf where all are.
#pragma once

#include "ops/reduce.h"

namespace lathe {

Value log_sum_exp(Value x, Ints axes, bool keep_dims = false);
extern const OpDef log_sum_exp_op;  // ReduceParams

}  // namespace lathe
