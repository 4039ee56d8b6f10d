// The network that a list of layers describes: [[model.layers]] of a recipe.
#include "nn/families/model.h"
#include "nn/layer_types/layer_type.h"
#include "ops/reshape.h"

namespace lathe {
namespace {

struct LayerList {
  struct Params {
    Tables layers;
    int64_t vocab = 256;
    int64_t sequence = 128;
    template <class F>
    static void fields(F&& f) {
      f("layers", &Params::layers, allow::tables(layer_tables, 1000), "the list of [[model.layers]]");
      const auto used = +[](const Params& p) { return takes_tokens(p.layers); };
      constexpr std::string_view kNeeds = "model.family = \"layers\" with layers that begin with an embedding";
      f("vocab", &Params::vocab, allow::range(2, 1 << 24), "number of tokens; bytes need 256, ASCII text 128", used,
        kNeeds);
      f("sequence", &Params::sequence, allow::range(1, 1 << 20), "number of positions", used, kNeeds);
    }
  };
  static constexpr FamilyInfo info{.name = "layers",
                                   .doc = "the layers of [[model.layers]], one after another",
                                   .weights = "the layer's name",
                                   .output = NetOutput::any};

  // Throws LayerError where a layer's shapes or names do not fit.
  static Value build(Net& net, const Params& p, const ModelInputs& in, Value x) {
    if (p.layers.empty()) throw LayerError(0, "expected at least one layer");
    LayerContext context(net, in.classes, takes_tokens(p.layers));
    const Value y = context.build(p.layers, x);
    context.set_last(p.layers.size() - 1);
    Shape wanted{x.dim(0), in.classes};
    const char* what = "a number for each class";
    if (context.text) wanted = {x.dim(0), x.dim(1), in.classes}, what = "a number for each token";
    if (in.pixels) wanted = {x.dim(0), x.dim(1), x.dim(2), in.classes}, what = "numbers for each pixel of the image";
    if (y.shape() != wanted)
      context.fail(fmt::format("expected {} ({}) as the output of the last layer, got {}", shape_text(wanted), what,
                               shape_text(y.shape())));
    return reshape(y, {y.shape().numel() / in.classes, in.classes});
  }

  static std::optional<TokenInput> tokens(const Params& p) {
    if (!takes_tokens(p.layers)) return std::nullopt;
    return TokenInput{p.vocab, p.sequence};
  }

  static void check(const Params& p, RuleReport& report) {
    if (p.layers.empty())
      report.fail({"layers", "family"}, "expected [[model.layers]] tables for model.family = \"layers\", got none");
  }

  // Builds the net once, for its shapes alone.
  static void check_sample(const Params& p, const ModelInputs& in, const TensorType& sample, RuleReport& report) {
    if (p.layers.empty()) return;
    Ints shape = sample.shape.to_ints();
    shape.insert(shape.begin(), 1);
    Builder b("layers");
    Net net(b, Mode::eval);
    try {
      const DType type = sample.dtype == DType::i32 ? DType::i32 : DType::f32;
      build(net, p, in, b.input({type, Shape(shape)}, InputKind::batch, "x"));
    } catch (const LayerError& e) {
      const std::string key = fmt::format("layers[{}]", e.index);
      report.fail({key, "layers"}, e.what());
    }
  }

  // With few channels where it fits together so, else as it is.
  static std::vector<Params> shrink(Params p, Ints&) {
    p.vocab = 128;  // generated text is ASCII
    p.sequence = at_most(p.sequence, 8);
    Params narrow = p;
    for (ParamSet& layer : narrow.layers)
      for (const Field& f : layer.schema().fields)
        if (f.name == "out" || f.name == "width" || f.name == "feed_forward") {
          int64_t& value = *std::get<int64_t*>(layer.at(f));
          value = at_most(value, 8);
        }
    return {narrow, p};
  }
};

}  // namespace

extern const ModelFamily layers_family;
constinit const ModelFamily layers_family = make_family<LayerList>();

}  // namespace lathe
