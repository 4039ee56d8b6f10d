// Vision transformer (Dosovitskiy et al., 2021): patches by a strided convolution, pre-norm blocks with exact GELU; the
// class is read from a class token or from the mean of all. torchvision's names.
#include "nn/families/model.h"
#include "nn/families/patches.h"
#include "nn/families/transformer.h"
#include "nn/layers.h"
#include "ops/broadcast.h"
#include "ops/concat.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/slice.h"

namespace lathe {

namespace {

struct Vit {
  struct Params : TransformerParams {
    int64_t patch = 4;
    std::string pool = "token";
    template <class F>
    static void fields(F&& f) {
      TransformerParams::fields(f);
      f("patch", &Params::patch, allow::range(1, 4096), "side of a patch; must divide the image's sides");
      f("pool", &Params::pool, allow::one_of({"token", "mean"}),
        "the class is read from the first token, or from the mean of all");
    }
  };
  static constexpr FamilyInfo info{.name = "vit",
                                   .doc = "transformer over patches of an image",
                                   .weights = "torchvision",
                                   .published = "ViT-B/16: 86,567,656"};

  static Value build(Net& net, const Params& p, const ModelInputs& in, Value x) {
    constexpr double kEps = 1e-6;
    const int64_t b = x.dim(0), d = p.width;
    const bool token = p.pool == "token";
    x = patches(net, "conv_proj", x, d, p.patch);
    if (token) {
      const Value first = net.param("class_token", {1, 1, d}, Init::constant(0));
      const Value parts[] = {broadcast_to(first, {b, 1, d}), x};
      x = concat(parts, 1);
    }
    const int64_t t = x.dim(1);
    x = dropout(net, x + net.param("encoder.pos_embedding", {1, t, d}, Init::normal(0.02)), p.dropout);
    const AttentionOptions attention{.heads = p.heads, .dropout = p.dropout, .in = ".in_proj_", .out = ".out_proj."};
    const int64_t inner = p.feed_forward > 0 ? p.feed_forward : 4 * d;
    for (int64_t i = 0; i < p.layers; ++i) {
      const std::string h = fmt::format("encoder.layers.encoder_layer_{}", i);
      x = x + self_attention(net, h + ".self_attention", layer_norm(net, h + ".ln_1", x, kEps), attention);
      Value y = unary("gelu_erf", linear(net, h + ".mlp.0", layer_norm(net, h + ".ln_2", x, kEps), inner));
      y = linear(net, h + ".mlp.3", dropout(net, y, p.dropout), d);
      x = x + dropout(net, y, p.dropout);
    }
    x = layer_norm(net, "encoder.ln", x, kEps);
    const Value pooled = token ? reshape(slice_axis(x, 1, 0, 1), {b, d}) : reduce_mean(x, {1});
    return linear(net, "heads.head", pooled, in.classes);
  }

  static void check(const Params& p, RuleReport& report) { check_heads(p.width, p.heads, report); }

  static void check_sample(const Params& p, const ModelInputs&, const TensorType& sample, RuleReport& report) {
    check_patch(p.patch, sample, report);
  }

  static std::vector<Params> shrink(Params p, Ints& image) {
    p.patch = at_most(p.patch, 4);
    image[0] = image[1] = 2 * p.patch;
    shrink_blocks(p);
    return {p};
  }
};

}  // namespace

extern const ModelFamily vit_family;
constinit const ModelFamily vit_family = make_family<Vit>();

}  // namespace lathe
