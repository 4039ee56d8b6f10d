// reduce_any, reduce_all: whether one, or every, bool along the axes is true.
#pragma once

#include "ops/reduce.h"

namespace lathe {

Value reduce_any(Value x, Ints axes, bool keep_dims = false);
Value reduce_all(Value x, Ints axes, bool keep_dims = false);
extern const OpDef reduce_any_op;  // ReduceParams
extern const OpDef reduce_all_op;

}  // namespace lathe
