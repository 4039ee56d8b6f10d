// Normalisation.
#include "nn/layer_types/layer_keys.h"

namespace lathe {
namespace {

// Norms over more than a position let a token see the next ones.
void want_no_text(const LayerContext& c) {
  if (c.text)
    c.fail(
        fmt::format("expected layer_norm or rms_norm for text: {} mixes a token with the next ones, which it must "
                    "not see",
                    c.type));
}

struct EpsParams : LayerParams {
  double eps = 1e-5;
  template <class F>
  static void fields(F&& f) {
    eps_field(f, &EpsParams::eps);
    LayerParams::fields(f);
  }
};

struct BatchNormLayer {
  struct Params : LayerParams {};
  static constexpr std::string_view name = "batch_norm",
                                    doc = "normalises each channel over the batch, with running statistics";
  static Value build(LayerContext& c, const Params&, Value x) {
    want_no_text(c);
    return batch_norm(c.net, c.name, x);
  }
};

struct LayerNormLayer {
  struct Params : EpsParams {};
  static constexpr std::string_view name = "layer_norm", doc = "normalises each position over its channels";
  static Value build(LayerContext& c, const Params& p, Value x) { return layer_norm(c.net, c.name, x, p.eps); }
};

struct RmsNormLayer {
  struct Params : LayerParams {};
  static constexpr std::string_view name = "rms_norm",
                                    doc = "divides each position by the root mean square of its channels";
  static Value build(LayerContext& c, const Params&, Value x) { return rms_norm(c.net, c.name, x); }
};

struct GroupNormLayer {
  struct Params : LayerParams {
    int64_t groups = 8;
    double eps = 1e-5;
    template <class F>
    static void fields(F&& f) {
      f("groups", &Params::groups, allow::range(1, kMaxChannels), "number of groups; must divide the channels");
      eps_field(f, &Params::eps);
      LayerParams::fields(f);
    }
  };
  static constexpr std::string_view name = "group_norm", doc = "normalises groups of channels of each sample";
  static Value build(LayerContext& c, const Params& p, Value x) {
    want_no_text(c);
    c.want(x.ndim() > 2, "an image or a sequence");
    return group_norm(c.net, c.name, x, p.groups, p.eps);
  }
};

struct InstanceNormLayer {
  struct Params : EpsParams {};
  static constexpr std::string_view name = "instance_norm",
                                    doc = "normalises each channel of each sample over all places";
  static Value build(LayerContext& c, const Params& p, Value x) {
    want_no_text(c);
    c.want(x.ndim() > 2, "an image or a sequence");
    return instance_norm(c.net, c.name, x, p.eps);
  }
};

}  // namespace

LayerTypes norm_layers() {
  return {make_layer<BatchNormLayer>(), make_layer<LayerNormLayer>(), make_layer<RmsNormLayer>(),
          make_layer<GroupNormLayer>(), make_layer<InstanceNormLayer>()};
}

}  // namespace lathe
