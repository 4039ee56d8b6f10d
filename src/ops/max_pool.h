// max_pool: maximum of each window; padding never wins, a NaN wins over every number, the first of equals wins.
//   max_pool(x) -> y
//   max_pool_grad(dy, x) -> dx    dy added at the position of each window's maximum in x
//   max_pool_pick(t, x) -> u      t read at the position of each window's maximum in x: the transpose of max_pool_grad
#pragma once

#include "ops/pool.h"

namespace lathe {

Value max_pool(Value x, const PoolParams&);
Value max_pool_grad(Value dy, Value x, const PoolParams&);
Value max_pool_pick(Value t, Value x, const PoolParams&);
extern const OpDef max_pool_op;
extern const OpDef max_pool_grad_op;
extern const OpDef max_pool_pick_op;

}  // namespace lathe
