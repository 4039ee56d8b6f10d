// Layers for inputs of any form.
#include "nn/layer_types/layer_keys.h"
#include "ops/concat.h"
#include "ops/reshape.h"

namespace lathe {
namespace {

struct DenseLayer {
  struct Params : LayerParams {
    int64_t out = 0;
    bool bias = true;
    template <class F>
    static void fields(F&& f) {
      out_field(f, &Params::out);
      bias_field(f, &Params::bias);
      LayerParams::fields(f);
    }
  };
  static constexpr std::string_view name = "dense",
                                    doc = "fully connected layer: of a whole image, of each position of a sequence";
  static Value build(LayerContext& c, const Params& p, Value x) {
    const int64_t out = c.width_of(p.out);
    return x.ndim() == 4 ? linear_of_image(c.net, c.name, x, out, p.bias) : linear(c.net, c.name, x, out, p.bias);
  }
};

struct DropoutLayer {
  struct Params : LayerParams {
    double rate = 0;
    template <class F>
    static void fields(F&& f) {
      f("rate", &Params::rate, allow::required(allow::range(0, 0.999)), "part that is dropped");
      LayerParams::fields(f);
    }
  };
  static constexpr std::string_view name = "dropout", doc = "drops activations while training";
  static Value build(LayerContext& c, const Params& p, Value x) { return dropout(c.net, x, p.rate); }
};

struct FlattenLayer {
  struct Params : LayerParams {};
  static constexpr std::string_view name = "flatten", doc = "one row per sample (dense does it by itself)";
  static Value build(LayerContext&, const Params&, Value x) {
    return reshape(x, {x.dim(0), x.shape().numel() / x.dim(0)});
  }
};

struct ActivationLayer {
  struct Params : LayerParams {
    std::string function = "relu";
    template <class F>
    static void fields(F&& f) {
      f("function", &Params::function, allow::required(allow::one_of(activations(false))), "which one");
      LayerParams::fields(f);
    }
  };
  static constexpr std::string_view name = "activation", doc = "a nonlinearity by itself";
  static Value build(LayerContext&, const Params& p, Value x) { return activation(p.function, x); }
};

struct PreluLayer {
  struct Params : LayerParams {};
  static constexpr std::string_view name = "prelu", doc =
                                                        "x where it is positive, elsewhere x times a slope for each "
                                                        "channel that is learnt";
  static Value build(LayerContext& c, const Params&, Value x) { return prelu(c.net, c.name, x); }
};

struct ConcatLayer {
  struct Params : LayerParams {
    std::string with;
    template <class F>
    static void fields(F&& f) {
      f("with", &Params::with,
        allow::required(allow::text(is_layer_name, "the name of a layer: letters, digits, '_', '-'")),
        "the layer whose output is appended");
      LayerParams::fields(f);
    }
  };
  static constexpr std::string_view name = "concat", doc = "the channels of another layer behind those of its input";
  static Value build(LayerContext& c, const Params& p, Value x) {
    const Value parts[] = {x, c.output_of("with", p.with)};
    if (parts[1].ndim() != x.ndim() || parts[1].shape().with_dim(-1, x.dim(-1)) != x.shape())
      c.fail(fmt::format("with: expected an output that differs from {} in the last number alone, got \"{}\" of {}",
                         shape_text(x.shape()), p.with, shape_text(parts[1].shape())));
    return concat(parts, -1);
  }
};

}  // namespace

LayerTypes plain_layers() {
  return {make_layer<DenseLayer>(),      make_layer<DropoutLayer>(), make_layer<FlattenLayer>(),
          make_layer<ActivationLayer>(), make_layer<PreluLayer>(),   make_layer<ConcatLayer>()};
}

}  // namespace lathe
