#include "ops/registry.h"

#include "ops/arg_max.h"
#include "ops/attention.h"
#include "ops/avg_pool.h"
#include "ops/batch_norm.h"
#include "ops/broadcast.h"
#include "ops/cast.h"
#include "ops/concat.h"
#include "ops/conv2d.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/fused.h"
#include "ops/gather.h"
#include "ops/grad.h"
#include "ops/layer_norm.h"
#include "ops/matmul.h"
#include "ops/max_pool.h"
#include "ops/pad.h"
#include "ops/random_uniform.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/slice.h"
#include "ops/softmax.h"
#include "ops/transpose.h"

namespace lathe {

const OpRegistry& registry() {
  static const OpRegistry table = [] {
    std::vector<const OpDef*> ops = elementwise_ops();
    const OpDef* const rows[] = {
        &arg_max_op,
        &attention_op,
        &attention_grad_op,
        &avg_pool_op,
        &avg_pool_grad_op,
        &batch_norm_op,
        &batch_norm_grad_op,
        &broadcast_op,
        &cast_op,
        &concat_op,
        &conv2d_op,
        &conv2d_dw_op,
        &conv2d_dx_op,
        &cross_entropy_op,
        &cross_entropy_grad_op,
        &dropout_op,
        &full_op,
        &fused_op,
        &gather_op,
        &grad_op,
        &iota_op,
        &layer_norm_op,
        &layer_norm_grad_op,
        &log_softmax_op,
        &log_softmax_grad_op,
        &matmul_op,
        &max_pool_op,
        &max_pool_grad_op,
        &max_pool_pick_op,
        &pad_op,
        &random_uniform_op,
        &reduce_max_op,
        &reduce_sum_op,
        &reshape_op,
        &scatter_add_op,
        &slice_op,
        &softmax_op,
        &softmax_grad_op,
        &transpose_op,
    };
    ops.insert(ops.end(), std::begin(rows), std::end(rows));
    return OpRegistry(std::move(ops));
  }();
  return table;
}

}  // namespace lathe
