#include "ops/registry.h"

#include <algorithm>

#include "ops/adaptive_pool.h"
#include "ops/arg_max.h"
#include "ops/attention.h"
#include "ops/avg_pool.h"
#include "ops/batch_norm.h"
#include "ops/bce_loss.h"
#include "ops/broadcast.h"
#include "ops/cast.h"
#include "ops/clamp.h"
#include "ops/collective.h"
#include "ops/concat.h"
#include "ops/conv1d.h"
#include "ops/conv2d.h"
#include "ops/cosine_similarity.h"
#include "ops/cross_entropy.h"
#include "ops/ctc_loss.h"
#include "ops/cumsum.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/elu.h"
#include "ops/full.h"
#include "ops/fused.h"
#include "ops/gather.h"
#include "ops/grad.h"
#include "ops/gradient.h"
#include "ops/group_norm.h"
#include "ops/grouped_attention.h"
#include "ops/kl_loss.h"
#include "ops/layer_norm.h"
#include "ops/leaky_relu.h"
#include "ops/log_sum_exp.h"
#include "ops/lstm_cell.h"
#include "ops/matmul.h"
#include "ops/max_pool.h"
#include "ops/mse_loss.h"
#include "ops/one_hot.h"
#include "ops/pad.h"
#include "ops/pixel_shuffle.h"
#include "ops/pool1d.h"
#include "ops/random_normal.h"
#include "ops/random_uniform.h"
#include "ops/reduce.h"
#include "ops/reduce_any.h"
#include "ops/reduce_min.h"
#include "ops/reduce_prod.h"
#include "ops/reshape.h"
#include "ops/resize.h"
#include "ops/rotary.h"
#include "ops/slice.h"
#include "ops/softmax.h"
#include "ops/sort.h"
#include "ops/split.h"
#include "ops/take.h"
#include "ops/tile.h"
#include "ops/transpose.h"
#include "ops/tree_sum.h"
#include "ops/triplet_loss.h"
#include "ops/variance.h"

namespace lathe {
namespace {

struct OwnOps {
  std::vector<const OpDef*> ops;
  bool closed = false;
};

OwnOps& own_ops() {
  static OwnOps own;
  return own;
}

std::vector<const OpDef*> all_ops() {
  std::vector<const OpDef*> ops = elementwise_ops();
  const OpDef* const rows[] = {
      &adaptive_avg_pool_op,
      &adaptive_max_pool_op,
      &all_gather_op,
      &all_reduce_op,
      &arg_max_op,
      &arg_min_op,
      &arg_sort_op,
      &attention_op,
      &attention_grad_op,
      &avg_pool_op,
      &avg_pool_grad_op,
      &avg_pool1d_op,
      &avg_pool3d_op,
      &batch_norm_op,
      &batch_norm_grad_op,
      &bce_loss_op,
      &broadcast_op,
      &cast_op,
      &clamp_op,
      &concat_op,
      &contrastive_loss_op,
      &conv1d_op,
      &conv2d_op,
      &conv2d_dw_op,
      &conv2d_dx_op,
      &conv3d_op,
      &conv_transpose1d_op,
      &conv_transpose2d_op,
      &conv_transpose3d_op,
      &cosine_loss_op,
      &cosine_similarity_op,
      &cross_entropy_op,
      &cross_entropy_grad_op,
      &ctc_loss_op,
      &cumprod_op,
      &cumsum_op,
      &dropout_op,
      &elu_op,
      &flip_op,
      &focal_loss_op,
      &full_op,
      &fused_op,
      &gather_op,
      &grad_op,
      &gradient_op,
      &group_norm_op,
      &grouped_attention_op,
      &gru_cell_op,
      &huber_loss_op,
      &instance_norm_op,
      &iota_op,
      &kl_loss_op,
      &l1_loss_op,
      &l2_normalize_op,
      &layer_norm_op,
      &layer_norm_grad_op,
      &leaky_relu_op,
      &local_slice_op,
      &log_softmax_op,
      &log_softmax_grad_op,
      &log_sum_exp_op,
      &lstm_cell_op,
      &masked_attention_op,
      &matmul_op,
      &max_pool_op,
      &max_pool_grad_op,
      &max_pool_pick_op,
      &max_pool1d_op,
      &max_pool3d_op,
      &mse_loss_op,
      &one_hot_op,
      &pad_op,
      &pairwise_distance_op,
      &pixel_shuffle_op,
      &pixel_unshuffle_op,
      &prelu_op,
      &random_bernoulli_op,
      &random_categorical_op,
      &random_exponential_op,
      &random_integer_op,
      &random_normal_op,
      &random_uniform_op,
      &reduce_all_op,
      &reduce_any_op,
      &reduce_max_op,
      &reduce_mean_op,
      &reduce_min_op,
      &reduce_prod_op,
      &reduce_scatter_op,
      &reduce_sum_op,
      &repeat_op,
      &reshape_op,
      &resize_bilinear_op,
      &resize_nearest_op,
      &rms_norm_op,
      &roll_op,
      &rotary_op,
      &scatter_add_op,
      &slice_op,
      &softmax_op,
      &softmax_grad_op,
      &sort_op,
      &split_op,
      &take_op,
      &tile_op,
      &top_k_op,
      &transpose_op,
      &tree_sum_op,
      &triplet_loss_op,
      &variance_op,
  };
  ops.insert(ops.end(), std::begin(rows), std::end(rows));
  return ops;
}

}  // namespace

const OpRegistry& registry() {
  static const OpRegistry table = [] {
    OwnOps& own = own_ops();
    own.closed = true;
    std::vector<const OpDef*> ops = all_ops();
    ops.insert(ops.end(), own.ops.begin(), own.ops.end());
    return OpRegistry(std::move(ops));
  }();
  return table;
}

void register_op(const OpDef& op) {
  OwnOps& own = own_ops();
  LATHE_USER_CHECK(!own.closed, "op {}: the table of ops is in use already; register ops at the start of the program",
                   op.name());
  for (const auto& taken : {all_ops(), own.ops})
    LATHE_USER_CHECK(std::ranges::find(taken, op.name(), [](const OpDef* o) { return o->name(); }) == taken.end(),
                     "op {}: the name is taken", op.name());
  own.ops.push_back(&op);
}

}  // namespace lathe
