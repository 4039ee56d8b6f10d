// Residual networks (He et al., 2016; the stride of a bottleneck stands at its 3x3 convolution), with torchvision's
// names.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "nn/families/model.h"
#include "nn/layers.h"
#include "ops/adaptive_pool.h"
#include "ops/elementwise.h"

namespace lathe {
namespace {

struct ResnetDepth {
  int64_t depth;
  int64_t blocks[4];
  bool bottleneck;  // 1x1, 3x3, 1x1 to four times the channels, instead of two 3x3
};
constexpr ResnetDepth kResnets[] = {
    {18, {2, 2, 2, 2}, false}, {34, {3, 4, 6, 3}, false}, {50, {3, 4, 6, 3}, true}, {101, {3, 4, 23, 3}, true}};

const ResnetDepth* find_resnet(int64_t depth) {  // or null
  const auto* found = std::ranges::find(kResnets, depth, &ResnetDepth::depth);
  return found == std::end(kResnets) ? nullptr : found;
}

// A convolution that keeps the size (up to its stride) and its norm; `scale`: what the norm's factor starts with.
Value resnet_conv(Net& net, const std::string& conv, const std::string& norm, Value x, int64_t out, int64_t kernel,
                  int64_t stride, double scale = 1) {
  const ConvOptions o{.kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = false, .he = true};
  return batch_norm(net, norm, conv2d(net, conv, x, out, o), scale);
}

Value residual_block(Net& net, const std::string& name, Value x, int64_t width, int64_t stride, bool bottleneck,
                     double last_scale) {
  const auto part = [&](int i, Value y, int64_t out, int64_t kernel, int64_t s, double scale = 1) {
    return resnet_conv(net, fmt::format("{}.conv{}", name, i), fmt::format("{}.bn{}", name, i), y, out, kernel, s,
                       scale);
  };
  const int64_t out = bottleneck ? 4 * width : width;
  Value y;
  if (bottleneck) {
    y = relu(part(1, x, width, 1, 1));
    y = relu(part(2, y, width, 3, stride));
    y = part(3, y, out, 1, 1, last_scale);
  } else {
    y = relu(part(1, x, width, 3, stride));
    y = part(2, y, out, 3, 1, last_scale);
  }
  if (stride != 1 || x.dim(3) != out)
    x = resnet_conv(net, name + ".downsample.0", name + ".downsample.1", x, out, 1, stride);
  return relu(y + x);
}

struct Resnet {
  struct Params {
    double dropout = 0;
    int64_t depth = 18;
    std::string stem = "small";
    bool zero_init = false;
    double scale = 1;
    template <class F>
    static void fields(F&& f) {
      f("dropout", &Params::dropout, allow::below(0, 1), "part of activations dropped while training");
      f("depth", &Params::depth, allow::range(18, 101), "18, 34, 50 or 101");
      f("stem", &Params::stem, allow::one_of({"small", "imagenet"}),
        "first layers: for small images (3x3, size kept), or as published for images of 224 x 224");
      f("zero_init", &Params::zero_init,
        "the last norm of each block starts with scale 0, so that blocks start as the identity");
      f("scale", &Params::scale, allow::above(0, 16), "factor of the published numbers of channels");
    }
  };
  static constexpr FamilyInfo info{.name = "resnet",
                                   .doc = "residual convolutions: ResNet-18, 34, 50, 101",
                                   .weights = "torchvision",
                                   .published = "18: 11,689,512; 34: 21,797,672; 50: 25,557,032; 101: 44,549,160",
                                   .test_side = 16};

  static Value build(Net& net, const Params& p, const ModelInputs& in, Value x) {
    const ResnetDepth* found = find_resnet(p.depth);
    LATHE_USER_CHECK(found, "model.depth: expected 18, 34, 50 or 101, got {}", p.depth);
    const ResnetDepth& shape = *found;
    const int64_t base = std::max<int64_t>(1, std::llround(64 * p.scale));
    if (p.stem == "imagenet")
      x = max_pool2d(relu(resnet_conv(net, "conv1", "bn1", x, base, 7, 2)), 3, 2, 1);
    else
      x = relu(resnet_conv(net, "conv1", "bn1", x, base, 3, 1));
    for (int stage = 0; stage < 4; ++stage)
      for (int64_t i = 0; i < shape.blocks[stage]; ++i)
        x = residual_block(net, fmt::format("layer{}.{}", stage + 1, i), x, base << stage, stage > 0 && i == 0 ? 2 : 1,
                           shape.bottleneck, p.zero_init ? 0 : 1);
    return linear(net, "fc", dropout(net, global_avg_pool(x), p.dropout), in.classes);
  }

  static void check(const Params& p, RuleReport& report) {
    if (!find_resnet(p.depth)) report.fail({"depth"}, fmt::format("expected 18, 34, 50 or 101, got {}", p.depth));
  }

  static std::vector<Params> shrink(Params p, Ints&) {
    p.scale = std::min(p.scale, 1.0 / 16);
    return {p};
  }
};

}  // namespace

extern const ModelFamily resnet_family;
constinit const ModelFamily resnet_family = make_family<Resnet>();

}  // namespace lathe
