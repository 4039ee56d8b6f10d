// MLP-Mixer (Tolstikhin et al., 2021): patches by a strided convolution; each block mixes the patches of a channel,
// then the channels of a patch. timm's names.
#include "nn/families/model.h"
#include "nn/families/patches.h"
#include "nn/layers.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/transpose.h"

namespace lathe {
namespace {

struct Mixer {
  struct Params {
    double dropout = 0;
    int64_t layers = 4;
    int64_t width = 128;
    int64_t token_mixing = 0;
    int64_t feed_forward = 0;
    int64_t patch = 4;
    template <class F>
    static void fields(F&& f) {
      f("dropout", &Params::dropout, allow::below(0, 1), "part of activations dropped while training");
      f("layers", &Params::layers, allow::range(1, 4096), "number of blocks");
      f("width", &Params::width, allow::range(1, 1 << 20), "width of the residual stream");
      f("token_mixing", &Params::token_mixing, allow::range(0, 1 << 20),
        "width inside of the layers over patches; 0: half of model.width, rounded up");
      f("feed_forward", &Params::feed_forward, allow::range(0, 1 << 20),
        "width inside of the feed-forward layers; 0: 4 times model.width");
      f("patch", &Params::patch, allow::range(1, 4096), "side of a patch; must divide the image's sides");
    }
  };
  static constexpr FamilyInfo info{.name = "mixer",
                                   .doc = "MLP-Mixer: dense layers over patches and over channels in turn",
                                   .weights = "timm",
                                   .published = "Mixer-B/16: 59,880,472"};

  // Two dense layers over the last axis.
  static Value mlp(Net& net, const Params& p, const std::string& name, Value x, int64_t inner) {
    const int64_t out = x.dim(-1);
    x = dropout(net, unary("gelu_erf", linear(net, name + ".fc1", x, inner)), p.dropout);
    return dropout(net, linear(net, name + ".fc2", x, out), p.dropout);
  }

  static Value build(Net& net, const Params& p, const ModelInputs& in, Value x) {
    constexpr double kEps = 1e-6;
    const int64_t tokens = p.token_mixing > 0 ? p.token_mixing : (p.width + 1) / 2;
    const int64_t channels = p.feed_forward > 0 ? p.feed_forward : 4 * p.width;
    x = patches(net, "stem.proj", x, p.width, p.patch);
    for (int64_t i = 0; i < p.layers; ++i) {
      const std::string block = fmt::format("blocks.{}", i);
      Value y = transpose(layer_norm(net, block + ".norm1", x, kEps), {0, 2, 1});  // (B, C, T)
      y = mlp(net, p, block + ".mlp_tokens", y, tokens);
      x = x + transpose(y, {0, 2, 1});
      x = x + mlp(net, p, block + ".mlp_channels", layer_norm(net, block + ".norm2", x, kEps), channels);
    }
    return linear(net, "head", reduce_mean(layer_norm(net, "norm", x, kEps), {1}), in.classes);
  }

  static void check_sample(const Params& p, const ModelInputs&, const TensorType& sample, RuleReport& report) {
    check_patch(p.patch, sample, report);
  }

  static std::vector<Params> shrink(Params p, Ints& image) {
    p.patch = at_most(p.patch, 4);
    image[0] = image[1] = 2 * p.patch;
    p.layers = at_most(p.layers, 2);
    p.width = at_most(p.width, 8);
    p.token_mixing = at_most(p.token_mixing, 6);
    p.feed_forward = at_most(p.feed_forward, 16);
    return {p};
  }
};

}  // namespace

extern const ModelFamily mixer_family;
constinit const ModelFamily mixer_family = make_family<Mixer>();

}  // namespace lathe
