#include "ops/registry.h"

#include "ops/broadcast.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/fused.h"
#include "ops/grad.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/transpose.h"

namespace lathe {

const OpRegistry& registry() {
  static const OpRegistry table = [] {
    std::vector<const OpDef*> ops = elementwise_ops();
    ops.insert(ops.end(), {
                              &broadcast_op,
                              &cast_op,
                              &full_op,
                              &fused_op,
                              &grad_op,
                              &iota_op,
                              &matmul_op,
                              &reduce_max_op,
                              &reduce_sum_op,
                              &reshape_op,
                              &transpose_op,
                          });
    return OpRegistry(std::move(ops));
  }();
  return table;
}

}  // namespace lathe
