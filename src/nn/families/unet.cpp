// U-Net (Ronneberger et al., 2015): convolutions on smaller and smaller images, then back to the full size, where each
// size takes in what was computed at that size on the way down. Padded convolutions with batch norm and the names of
// the common PyTorch implementation (inc, down1, ..., up1, ..., outc).
#include <cmath>

#include "nn/families/model.h"
#include "nn/layers.h"
#include "ops/concat.h"
#include "ops/conv2d.h"
#include "ops/elementwise.h"
#include "ops/reshape.h"

namespace lathe {
namespace {

Value double_conv(Net& net, const std::string& name, Value x, int64_t out) {
  for (const int64_t i : {0, 3}) {
    const std::string base = name + ".double_conv.";
    x = conv2d(net, base + std::to_string(i), x, out, {.bias = false});
    x = relu(batch_norm(net, base + std::to_string(i + 1), x));
  }
  return x;
}

// Transposed convolution of 2 x 2 with stride 2: twice the size.
Value unet_upsample(Net& net, const std::string& name, Value x, int64_t out) {
  Origin origin(net.builder(), name);
  const int64_t in = x.dim(3);
  const Init init = Init::uniform(1 / std::sqrt(static_cast<double>(4 * out)));
  const FileLayout file{{in, 2, 2, out}, {0, 3, 1, 2}, {in, out, 2, 2}};
  const Value w = net.param(name + ".weight", {in, 2, 2, out}, init, file);
  Conv2dParams p;
  p.stride_h = p.stride_w = 2;
  return conv2d_dx(x, w, p, 2 * x.dim(1), 2 * x.dim(2)) + net.param(name + ".bias", {out}, init);
}

struct Unet {
  struct Params {
    Ints channels{32, 64};
    double dropout = 0;
    template <class F>
    static void fields(F&& f) {
      f("channels", &Params::channels, allow::list(allow::range(1, 65536), 1, 16),
        "channels of each size, the first is that of the image");
      f("dropout", &Params::dropout, allow::below(0, 1), "part of activations dropped while training");
    }
  };
  static constexpr FamilyInfo info{.name = "unet",
                                   .doc = "convolutions to smaller images and back, an output for each pixel",
                                   .weights = "Pytorch-UNet",
                                   .published = "channels 64 to 1024, 2 classes: 31,037,698",
                                   .output = NetOutput::pixel};

  static Value build(Net& net, const Params& p, const ModelInputs& in, Value x) {
    const size_t halvings = p.channels.size() - 1;
    const int64_t step = int64_t{1} << halvings;
    LATHE_USER_CHECK(x.dim(1) % step == 0 && x.dim(2) % step == 0,
                     "model.channels: expected image sides that {} divides for {} sizes, got {} x {}", step,
                     p.channels.size(), x.dim(1), x.dim(2));
    Values levels{double_conv(net, "inc", x, p.channels[0])};
    for (size_t i = 1; i <= halvings; ++i)
      levels.push_back(
          double_conv(net, fmt::format("down{}.maxpool_conv.1", i), max_pool2d(levels.back(), 2, 2), p.channels[i]));
    Value y = dropout(net, levels.back(), p.dropout);
    for (size_t i = 1; i <= halvings; ++i) {
      const std::string name = fmt::format("up{}", i);
      const size_t level = halvings - i;
      const Value parts[] = {levels[level], unet_upsample(net, name + ".up", y, p.channels[level])};
      y = double_conv(net, name + ".conv", concat(parts, 3), p.channels[level]);
    }
    y = conv2d(net, "outc.conv", y, in.classes, {.kernel = 1, .padding = 0});
    return reshape(y, {y.shape().numel() / in.classes, in.classes});
  }

  static void check_sample(const Params& p, const ModelInputs&, const TensorType& sample, RuleReport& report) {
    const int64_t h = sample.shape[0], w = sample.shape[1], step = int64_t{1} << (p.channels.size() - 1);
    if (h % step != 0 || w % step != 0)
      report.fail({"channels"},
                  fmt::format("expected few enough sizes for images of {} x {} (each but the first halves the image), "
                              "got {}",
                              h, w, p.channels.size()));
  }

  static std::vector<Params> shrink(Params p, Ints&) {
    p.channels = at_most(p.channels, 2, 4);
    return {p};
  }
};

}  // namespace

extern const ModelFamily unet_family;
constinit const ModelFamily unet_family = make_family<Unet>();

}  // namespace lathe
