// Vision transformer (Dosovitskiy et al., 2021): patches by a strided convolution, pre-norm blocks with exact GELU; the
// class is read from a token of its own or from the mean of all. torchvision's names.
#include "nn/families/model.h"
#include "nn/layers.h"
#include "ops/broadcast.h"
#include "ops/concat.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/slice.h"

namespace lathe {

Value build_vit(Net& net, const ModelConfig& c, Value x) {
  constexpr double kEps = 1e-6;
  const int64_t b = x.dim(0), d = c.width;
  LATHE_USER_CHECK(x.dim(1) % c.patch == 0 && x.dim(2) % c.patch == 0,
                   "model.patch: expected a divisor of the image sides {} and {}, got {}", x.dim(1), x.dim(2), c.patch);
  const bool token = c.pool == "token";
  const int64_t patches = (x.dim(1) / c.patch) * (x.dim(2) / c.patch);
  x = reshape(conv2d(net, "conv_proj", x, d, {.kernel = c.patch, .stride = c.patch, .padding = 0}), {b, patches, d});
  if (token) {
    const Value first = net.param("class_token", {1, 1, d}, Init::constant(0));
    const Value parts[] = {broadcast_to(first, {b, 1, d}), x};
    x = concat(parts, 1);
  }
  const int64_t t = x.dim(1);
  x = dropout(net, x + net.param("encoder.pos_embedding", {1, t, d}, Init::normal(0.02)), c.dropout);
  const AttentionOptions attention{.heads = c.heads, .dropout = c.dropout, .in = ".in_proj_", .out = ".out_proj."};
  const int64_t inner = c.feed_forward > 0 ? c.feed_forward : 4 * d;
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string h = fmt::format("encoder.layers.encoder_layer_{}", i);
    x = x + self_attention(net, h + ".self_attention", layer_norm(net, h + ".ln_1", x, kEps), attention);
    Value y = unary("gelu_erf", linear(net, h + ".mlp.0", layer_norm(net, h + ".ln_2", x, kEps), inner));
    y = linear(net, h + ".mlp.3", dropout(net, y, c.dropout), d);
    x = x + dropout(net, y, c.dropout);
  }
  x = layer_norm(net, "encoder.ln", x, kEps);
  const Value pooled = token ? reshape(slice_axis(x, 1, 0, 1), {b, d}) : reduce_mean(x, {1});
  return linear(net, "heads.head", pooled, c.classes);
}

}  // namespace lathe
