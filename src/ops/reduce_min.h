// reduce_min: minimum over axes; NaN if any is. arg_min: position of the first minimum along an axis. Both are the
// maximum of the mirrored numbers.
#pragma once

#include "ir/builder.h"
#include "ops/arg_max.h"
#include "ops/reduce.h"

namespace lathe {

Value reduce_min(Value x, Ints axes, bool keep_dims = false);
Value arg_min(Value x, int axis);
extern const OpDef reduce_min_op;  // ReduceParams
extern const OpDef arg_min_op;     // ArgMaxParams

}  // namespace lathe
