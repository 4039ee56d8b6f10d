// A stack of LSTM or GRU layers that reads an image row by row; the class is read from the last state.
#include "nn/families/model.h"
#include "nn/layers.h"
#include "ops/reshape.h"
#include "ops/slice.h"

namespace lathe {

namespace {

struct Lstm {
  struct Params {
    double dropout = 0;
    int64_t layers = 4;
    int64_t width = 128;
    std::string cell = "lstm";
    template <class F>
    static void fields(F&& f) {
      f("dropout", &Params::dropout, allow::below(0, 1), "part of activations dropped while training");
      f("layers", &Params::layers, allow::range(1, 4096), "number of layers");
      f("width", &Params::width, allow::range(1, 1 << 20), "width of the state");
      f("cell", &Params::cell, allow::one_of({"lstm", "gru"}), "kind of the recurrent layers");
    }
  };
  static constexpr FamilyInfo info{
      .name = "lstm", .doc = "recurrent network over the rows of an image", .weights = "PyTorch, one bias"};

  // The graph has no loops: one cell per row and layer. Names follow PyTorch's, with one bias where it adds two.
  static Value build(Net& net, const Params& p, const ModelInputs& in, Value x) {
    const int64_t b = x.dim(0), steps = x.dim(1), d = p.width;
    x = reshape(x, {b, steps, x.dim(2) * x.dim(3)});
    Values sequence;
    for (int64_t t = 0; t < steps; ++t) sequence.push_back(reshape(slice_axis(x, 1, t, 1), {b, x.dim(2)}));
    const bool gru = p.cell == "gru";
    const std::string name = gru ? "gru" : "lstm";
    for (int64_t i = 0; i < p.layers; ++i) {
      Origin origin(net.builder(), fmt::format("{}.{}", name, i));
      sequence = recurrent(net, name, fmt::format("_l{}", i), sequence, d, gru);
      if (i + 1 < p.layers)
        for (Value& v : sequence) v = dropout(net, v, p.dropout);
    }
    return linear(net, "fc", dropout(net, sequence.back(), p.dropout), in.classes);
  }

  static std::vector<Params> shrink(Params p, Ints&) {
    p.layers = at_most(p.layers, 2);
    p.width = 8;
    return {p};
  }
};

}  // namespace

extern const ModelFamily lstm_family;
constinit const ModelFamily lstm_family = make_family<Lstm>();

}  // namespace lathe
