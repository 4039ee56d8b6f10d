// avg_pool: mean of each window; padding counts as zeros, so the divisor is always kernel_h * kernel_w.
//   avg_pool(x) -> y
//   avg_pool_grad(dy) -> dx       its transpose; size_h, size_w: height and width of x
#pragma once

#include "ops/pool.h"

namespace lathe {

Value avg_pool(Value x, const PoolParams&);
Value avg_pool_grad(Value dy, PoolParams, int64_t in_h, int64_t in_w);
extern const OpDef avg_pool_op;
extern const OpDef avg_pool_grad_op;

}  // namespace lathe
