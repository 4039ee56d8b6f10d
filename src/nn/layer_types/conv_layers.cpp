// Convolutions.
#include "nn/layer_types/layer_keys.h"

namespace lathe {
namespace {

struct ConvLayer {
  struct Params : LayerParams {
    int64_t out = 0, kernel = 3, stride = 1, padding = -1, dilation = 1, groups = 1;
    bool bias = true;
    template <class F>
    static void fields(F&& f) {
      channels_field(f, &Params::out);
      f("kernel", &Params::kernel, allow::range(1, 1024), "side of the kernel");
      f("stride", &Params::stride, allow::range(1, 64), "step of the kernel");
      padding_field(f, &Params::padding);
      f("dilation", &Params::dilation, allow::range(1, 1024), "distance of the kernel's taps");
      f("groups", &Params::groups, allow::range(1, kMaxChannels),
        "channels are convolved in so many groups; as many as channels: depthwise");
      bias_field(f, &Params::bias);
      LayerParams::fields(f);
    }
  };
  static constexpr std::string_view name = "conv", doc = "2-d convolution of an image";
  static Value build(LayerContext& c, const Params& p, Value x) {
    c.want_image();
    return conv2d(c.net, c.name, x, c.width_of(p.out),
                  {.kernel = p.kernel,
                   .stride = p.stride,
                   .padding = p.padding,
                   .dilation = p.dilation,
                   .groups = p.groups,
                   .bias = p.bias});
  }
};

struct Conv1dLayer {
  struct Params : LayerParams {
    int64_t out = 0, kernel = 3, stride = 1, padding = -1, dilation = 1, groups = 1;
    bool causal = false, bias = true;
    template <class F>
    static void fields(F&& f) {
      out_field(f, &Params::out);
      f("kernel", &Params::kernel, allow::range(1, 1024), "length of the kernel");
      f("stride", &Params::stride, allow::range(1, 1024), "step of the kernel");
      padding_field(f, &Params::padding);
      f("dilation", &Params::dilation, allow::range(1, 1024), "distance of the kernel's taps");
      f("groups", &Params::groups, allow::range(1, kMaxChannels), "channels are convolved in so many groups");
      causal_field(f, &Params::causal);
      bias_field(f, &Params::bias);
      LayerParams::fields(f);
    }
  };
  static constexpr std::string_view name = "conv1d", doc = "convolution over the positions of a sequence";
  static Value build(LayerContext& c, const Params& p, Value x) {
    c.want_sequence();
    const ConvOptions o{.kernel = p.kernel,
                        .stride = p.stride,
                        .padding = p.padding,
                        .dilation = p.dilation,
                        .groups = p.groups,
                        .bias = p.bias};
    return conv1d(c.net, c.name, x, c.width_of(p.out), o, c.causal(p.causal));
  }
};

struct ConvTransposeLayer {
  struct Params : LayerParams {
    int64_t out = 0, kernel = 2, stride = 2, padding = 0, extra = 0, groups = 1;
    bool bias = true;
    template <class F>
    static void fields(F&& f) {
      channels_field(f, &Params::out);
      f("kernel", &Params::kernel, allow::range(1, 1024), "side of the kernel");
      f("stride", &Params::stride, allow::range(1, 64), "by which the image grows");
      f("padding", &Params::padding, allow::range(0, 1024), "pixels cut off at each side");
      f("extra", &Params::extra, allow::range(0, 1024), "rows and columns more, below and right");
      f("groups", &Params::groups, allow::range(1, kMaxChannels), "channels are convolved in so many groups");
      bias_field(f, &Params::bias);
      LayerParams::fields(f);
    }
  };
  static constexpr std::string_view name = "conv_transpose",
                                    doc = "transposed convolution, which makes an image larger";
  static Value build(LayerContext& c, const Params& p, Value x) {
    c.want_image();
    return conv_transpose2d(c.net, c.name, x, c.width_of(p.out),
                            {.kernel = p.kernel,
                             .stride = p.stride,
                             .padding = p.padding,
                             .extra = p.extra,
                             .groups = p.groups,
                             .bias = p.bias});
  }
};

}  // namespace

LayerTypes conv_layers() {
  return {make_layer<ConvLayer>(), make_layer<Conv1dLayer>(), make_layer<ConvTransposeLayer>()};
}

}  // namespace lathe
