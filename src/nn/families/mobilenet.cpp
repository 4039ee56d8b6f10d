// Networks of inverted residuals: 1x1 to more channels, depthwise convolution, 1x1 back without activation.
// MobileNetV2 (Sandler et al., 2018) with torchvision's names; EfficientNet-Lite (Tan and Le, 2019; ReLU6, no squeeze
// and excitation) with timm's.
#include <algorithm>
#include <cmath>

#include "nn/families/model.h"
#include "nn/layers.h"
#include "ops/adaptive_pool.h"
#include "ops/elementwise.h"

namespace lathe {
namespace {

struct InvertedStage {
  int64_t expand, channels, repeats, stride, kernel;
};
constexpr InvertedStage kMobilenetV2[] = {{1, 16, 1, 1, 3}, {6, 24, 2, 2, 3},  {6, 32, 3, 2, 3}, {6, 64, 4, 2, 3},
                                          {6, 96, 3, 1, 3}, {6, 160, 3, 2, 3}, {6, 320, 1, 1, 3}};
constexpr InvertedStage kEfficientnet[] = {{1, 16, 1, 1, 3},  {6, 24, 2, 2, 3},  {6, 40, 2, 2, 5}, {6, 80, 3, 2, 3},
                                           {6, 112, 3, 1, 5}, {6, 192, 4, 2, 5}, {6, 320, 1, 1, 3}};
struct LiteVariant {
  double width, depth;
};
constexpr LiteVariant kLiteVariants[] = {{1.0, 1.0}, {1.0, 1.1}, {1.1, 1.2}, {1.2, 1.4}, {1.4, 1.8}};

// The nearest multiple of 8 that is not below 90 % of `channels`.
int64_t eights(double channels) {
  const int64_t near = std::max<int64_t>(8, static_cast<int64_t>(channels + 4) / 8 * 8);
  return static_cast<double>(near) < 0.9 * channels ? near + 8 : near;
}

struct ConvNorm {
  std::string conv, norm;
};

Value mobile_conv(Net& net, const ConvNorm& name, Value x, int64_t out, int64_t kernel, int64_t stride,
                  int64_t groups = 1) {
  const ConvOptions o{
      .kernel = kernel, .stride = stride, .padding = kernel / 2, .groups = groups, .bias = false, .he = true};
  return batch_norm(net, name.norm, conv2d(net, name.conv, x, out, o));
}

Value relu6(Value x) { return activation("relu6", x); }

// `wide` is not used where nothing is expanded.
Value inverted_residual(Net& net, const ConvNorm& wide, const ConvNorm& deep, const ConvNorm& narrow, Value x,
                        const InvertedStage& s, int64_t out, int64_t stride) {
  const int64_t in = x.dim(3), hidden = in * s.expand;
  Value y = x;
  if (s.expand != 1) y = relu6(mobile_conv(net, wide, y, hidden, 1, 1));
  y = relu6(mobile_conv(net, deep, y, hidden, s.kernel, stride, hidden));
  y = mobile_conv(net, narrow, y, out, 1, 1);
  return stride == 1 && in == out ? x + y : y;
}

// Small images keep their size in the stem and in the first stage that would halve it.
int64_t stride_of(std::string_view stem, size_t stage, int64_t stride) {
  return stem == "small" && stage <= 1 ? 1 : stride;
}

struct MobileParams {
  double dropout = 0;
  std::string stem = "small";
  double scale = 1;
  template <class F>
  static void fields(F&& f) {
    using P = MobileParams;
    f("dropout", &P::dropout, allow::below(0, 1), "part of activations dropped while training");
    f("stem", &P::stem, allow::one_of({"small", "imagenet"}),
      "first layers: for small images (3x3, size kept), or as published for images of 224 x 224");
    f("scale", &P::scale, allow::above(0, 16), "factor of the published numbers of channels");
  }
};

struct Mobilenetv2 {
  using Params = MobileParams;
  static constexpr FamilyInfo info{.name = "mobilenetv2",
                                   .doc = "inverted residuals with depthwise convolutions",
                                   .weights = "torchvision",
                                   .published = "3,504,872",
                                   .test_side = 16};

  static Value build(Net& net, const Params& p, const ModelInputs& in, Value x) {
    const auto feature = [](int i, const char* conv, const char* norm) {
      return ConvNorm{fmt::format("features.{}.{}", i, conv), fmt::format("features.{}.{}", i, norm)};
    };
    x = relu6(mobile_conv(net, feature(0, "0", "1"), x, eights(32 * p.scale), 3, stride_of(p.stem, 0, 2)));
    int at = 1;
    for (size_t stage = 0; stage < std::size(kMobilenetV2); ++stage) {
      const InvertedStage& s = kMobilenetV2[stage];
      const int64_t out = eights(static_cast<double>(s.channels) * p.scale);
      for (int64_t i = 0; i < s.repeats; ++i, ++at) {
        const int64_t stride = i == 0 ? stride_of(p.stem, stage, s.stride) : 1;
        x = s.expand == 1
                ? inverted_residual(net, {}, feature(at, "conv.0.0", "conv.0.1"), feature(at, "conv.1", "conv.2"), x, s,
                                    out, stride)
                : inverted_residual(net, feature(at, "conv.0.0", "conv.0.1"), feature(at, "conv.1.0", "conv.1.1"),
                                    feature(at, "conv.2", "conv.3"), x, s, out, stride);
      }
    }
    x = relu6(mobile_conv(net, feature(at, "0", "1"), x, eights(1280 * std::max(1.0, p.scale)), 1, 1));
    return linear(net, "classifier.1", dropout(net, global_avg_pool(x), p.dropout), in.classes);
  }

  static std::vector<Params> shrink(Params p, Ints&) {
    p.scale = std::min(p.scale, 1.0 / 16);
    return {p};
  }
};

struct Efficientnet {
  struct Params : MobileParams {
    int64_t variant = 0;
    template <class F>
    static void fields(F&& f) {
      MobileParams::fields(f);
      f("variant", &Params::variant, allow::range(0, 4), "lite 0 to 4");
    }
  };
  static constexpr FamilyInfo info{.name = "efficientnet",
                                   .doc = "EfficientNet-Lite 0 to 4",
                                   .weights = "timm",
                                   .published = "0: 4,652,008; 1: 5,416,680; 2: 6,092,072; 3: 8,197,096; 4: 13,006,568",
                                   .test_side = 16};

  static Value build(Net& net, const Params& p, const ModelInputs& in, Value x) {
    LATHE_USER_CHECK(p.variant >= 0 && p.variant < static_cast<int64_t>(std::size(kLiteVariants)),
                     "model.variant: expected 0 to 4, got {}", p.variant);
    const LiteVariant& v = kLiteVariants[p.variant];
    constexpr size_t kStages = std::size(kEfficientnet);
    x = relu6(mobile_conv(net, {"conv_stem", "bn1"}, x, eights(32 * p.scale), 3, stride_of(p.stem, 0, 2)));
    for (size_t stage = 0; stage < kStages; ++stage) {
      const InvertedStage& s = kEfficientnet[stage];
      const int64_t out = eights(static_cast<double>(s.channels) * v.width * p.scale);
      // The lite variants keep the depth of the first and the last stage, and the stem and the head.
      const bool fixed = stage == 0 || stage + 1 == kStages;
      const auto repeats = fixed ? s.repeats : std::llround(std::ceil(static_cast<double>(s.repeats) * v.depth - 1e-9));
      for (int64_t i = 0; i < repeats; ++i) {
        const std::string block = fmt::format("blocks.{}.{}.", stage, i);
        const auto name = [&](const char* conv, int norm) {
          return ConvNorm{block + conv, fmt::format("{}bn{}", block, norm)};
        };
        const int64_t stride = i == 0 ? stride_of(p.stem, stage, s.stride) : 1;
        x = s.expand == 1 ? inverted_residual(net, {}, name("conv_dw", 1), name("conv_pw", 2), x, s, out, stride)
                          : inverted_residual(net, name("conv_pw", 1), name("conv_dw", 2), name("conv_pwl", 3), x, s,
                                              out, stride);
      }
    }
    x = relu6(mobile_conv(net, {"conv_head", "bn2"}, x, eights(1280 * std::max(1.0, p.scale)), 1, 1));
    return linear(net, "classifier", dropout(net, global_avg_pool(x), p.dropout), in.classes);
  }

  static std::vector<Params> shrink(Params p, Ints&) {
    p.scale = std::min(p.scale, 1.0 / 16);
    return {p};
  }
};

}  // namespace

extern const ModelFamily mobilenetv2_family;
constinit const ModelFamily mobilenetv2_family = make_family<Mobilenetv2>();
extern const ModelFamily efficientnet_family;
constinit const ModelFamily efficientnet_family = make_family<Efficientnet>();

}  // namespace lathe
