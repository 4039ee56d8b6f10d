// Pooling, and images at other sizes.
#include "nn/layer_types/layer_keys.h"
#include "ops/adaptive_pool.h"
#include "ops/avg_pool.h"
#include "ops/max_pool.h"
#include "ops/pixel_shuffle.h"
#include "ops/reduce.h"
#include "ops/resize.h"

namespace lathe {
namespace {

struct WindowParams : LayerParams {
  int64_t kernel = 2, stride = 0, padding = 0;
  template <class F>
  static void fields(F&& f) {
    f("kernel", &WindowParams::kernel, allow::range(1, 1024), "side of the window");
    f("stride", &WindowParams::stride, allow::range(0, 1024), "step of the window; 0: its side");
    padding_field(f, &WindowParams::padding);
    LayerParams::fields(f);
  }
};

PoolParams windows(const LayerContext& c, const WindowParams& p, Value x) {
  c.want_image();
  const int64_t stride = p.stride > 0 ? p.stride : p.kernel;
  const AxisPad h = axis_pad(x.dim(1), p.kernel, stride, p.padding),
                w = axis_pad(x.dim(2), p.kernel, stride, p.padding);
  PoolParams out;
  out.kernel_h = out.kernel_w = p.kernel;
  out.stride_h = out.stride_w = stride;
  out.pad_top = h.before, out.pad_bottom = h.after, out.pad_left = w.before, out.pad_right = w.after;
  return out;
}

struct MaxPoolLayer {
  struct Params : WindowParams {};
  static constexpr std::string_view name = "max_pool", doc = "largest value of each window";
  static Value build(LayerContext& c, const Params& p, Value x) { return max_pool(x, windows(c, p, x)); }
};

struct AvgPoolLayer {
  struct Params : WindowParams {};
  static constexpr std::string_view name = "avg_pool", doc = "mean of each window";
  static Value build(LayerContext& c, const Params& p, Value x) { return avg_pool(x, windows(c, p, x)); }
};

struct GlobalPoolLayer {
  struct Params : LayerParams {
    std::string kind = "avg";
    template <class F>
    static void fields(F&& f) {
      f("kind", &Params::kind, allow::one_of({"avg", "max"}), "mean or maximum");
      LayerParams::fields(f);
    }
  };
  static constexpr std::string_view name = "global_pool",
                                    doc = "mean or maximum over all pixels, or over all positions";
  static Value build(LayerContext& c, const Params& p, Value x) {
    const bool max = p.kind == "max";
    if (x.ndim() == 4) return max ? global_max_pool(x) : global_avg_pool(x);
    c.want(x.ndim() == 3, "an image or a sequence");
    return max ? reduce_max(x, {1}) : reduce_mean(x, {1});
  }
};

struct AdaptivePoolLayer {
  struct Params : LayerParams {
    int64_t height = 1, width = 1;
    std::string kind = "avg";
    template <class F>
    static void fields(F&& f) {
      f("height", &Params::height, allow::range(1, 65536), "of the output");
      f("width", &Params::width, allow::range(1, 65536), "of the output");
      f("kind", &Params::kind, allow::one_of({"avg", "max"}), "mean or maximum");
      LayerParams::fields(f);
    }
  };
  static constexpr std::string_view name = "adaptive_pool",
                                    doc = "mean or maximum of an image's parts, as many as are asked for";
  static Value build(LayerContext& c, const Params& p, Value x) {
    c.want_image();
    return p.kind == "max" ? adaptive_max_pool(x, p.height, p.width) : adaptive_avg_pool(x, p.height, p.width);
  }
};

constexpr int64_t kFactor = 2;

template <class F, class P>
void factor_field(F&& f, int64_t P::*member) {
  f("factor", member, allow::range(1, 1024), "by which height and width change");
}

struct ResizeLayer {
  struct Params : LayerParams {
    int64_t factor = kFactor, height = 0, width = 0;
    std::string kind = "nearest";
    template <class F>
    static void fields(F&& f) {
      factor_field(f, &Params::factor);
      f("height", &Params::height, allow::range(0, 65536), "of the output, instead of the factor; 0: by the factor");
      f("width", &Params::width, allow::range(0, 65536), "of the output, instead of the factor; 0: by the factor");
      f("kind", &Params::kind, allow::one_of({"nearest", "bilinear"}), "the nearest pixel, or between pixels");
      LayerParams::fields(f);
    }
  };
  static constexpr std::string_view name = "resize", doc = "an image at another size";
  static Value build(LayerContext& c, const Params& p, Value x) {
    c.want_image();
    if ((p.height > 0 || p.width > 0) && p.factor != kFactor)
      c.fail("factor: expected either it or height and width, got both");
    const int64_t h = p.height > 0 ? p.height : x.dim(1) * p.factor, w = p.width > 0 ? p.width : x.dim(2) * p.factor;
    return p.kind == "nearest" ? resize_nearest(x, h, w) : resize_bilinear(x, h, w);
  }
};

struct FactorParams : LayerParams {
  int64_t factor = kFactor;
  template <class F>
  static void fields(F&& f) {
    factor_field(f, &FactorParams::factor);
    LayerParams::fields(f);
  }
};

struct PixelShuffleLayer {
  struct Params : FactorParams {};
  static constexpr std::string_view name = "pixel_shuffle", doc =
                                                                "channels to pixels: an image factor times as large "
                                                                "with factor^2 fewer channels";
  static Value build(LayerContext& c, const Params& p, Value x) {
    c.want_image();
    return pixel_shuffle(x, p.factor);
  }
};

struct PixelUnshuffleLayer {
  struct Params : FactorParams {};
  static constexpr std::string_view name = "pixel_unshuffle", doc = "pixels to channels: the inverse of pixel_shuffle";
  static Value build(LayerContext& c, const Params& p, Value x) {
    c.want_image();
    return pixel_unshuffle(x, p.factor);
  }
};

}  // namespace

LayerTypes image_layers() {
  return {make_layer<MaxPoolLayer>(),       make_layer<AvgPoolLayer>(), make_layer<GlobalPoolLayer>(),
          make_layer<AdaptivePoolLayer>(),  make_layer<ResizeLayer>(),  make_layer<PixelShuffleLayer>(),
          make_layer<PixelUnshuffleLayer>()};
}

}  // namespace lathe
