// Vision transformer (Dosovitskiy et al., 2021): patches by a strided convolution, pre-norm blocks with exact GELU; the
// class is read from a token of its own or from the mean of all. torchvision's names.
#include "nn/families/model.h"
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
  struct Params {
    double dropout = 0;
    int64_t layers = 4;
    int64_t heads = 4;
    int64_t width = 128;
    int64_t feed_forward = 0;
    int64_t patch = 4;
    std::string pool = "token";
    template <class F>
    static void fields(F&& f) {
      f("dropout", &Params::dropout, allow::below(0, 1), "part of activations dropped while training");
      f("layers", &Params::layers, allow::range(1, 4096), "number of blocks");
      f("heads", &Params::heads, allow::range(1, 1024), "attention heads; must divide model.width");
      f("width", &Params::width, allow::range(1, 1 << 20), "width of the residual stream");
      f("feed_forward", &Params::feed_forward, allow::range(0, 1 << 20),
        "width inside of the feed-forward layers; 0: 4 times model.width");
      f("patch", &Params::patch, allow::range(1, 4096), "side of a patch; must divide the image's sides");
      f("pool", &Params::pool, allow::one_of({"token", "mean"}),
        "the class is read from the first token, or from the mean of all");
    }
  };
  static constexpr FamilyInfo info{.name = "vit", .doc = "transformer over patches of an image"};

  static Value build(Net& net, const Params& p, const ModelInputs& in, Value x) {
    constexpr double kEps = 1e-6;
    const int64_t b = x.dim(0), d = p.width;
    LATHE_USER_CHECK(x.dim(1) % p.patch == 0 && x.dim(2) % p.patch == 0,
                     "model.patch: expected a divisor of the image sides {} and {}, got {}", x.dim(1), x.dim(2),
                     p.patch);
    const bool token = p.pool == "token";
    const int64_t patches = (x.dim(1) / p.patch) * (x.dim(2) / p.patch);
    x = reshape(conv2d(net, "conv_proj", x, d, {.kernel = p.patch, .stride = p.patch, .padding = 0}), {b, patches, d});
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
    const int64_t h = sample.shape[0], w = sample.shape[1];
    if (h % p.patch != 0 || w % p.patch != 0)
      report.fail({"patch"}, fmt::format("expected a divisor of the image sides {} and {}, got {}", h, w, p.patch));
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
