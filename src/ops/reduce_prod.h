// reduce_prod: product over axes; of nothing it is 1. Pairs are multiplied, then pairs of pairs: its derivative is
// right where elements are zero, too.
#pragma once

#include "ops/reduce.h"

namespace lathe {

Value reduce_prod(Value x, Ints axes, bool keep_dims = false);
extern const OpDef reduce_prod_op;  // ReduceParams

}  // namespace lathe
