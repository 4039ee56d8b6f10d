#include "nn/families/model.h"
#include "nn/layers.h"

namespace lathe {
namespace {

struct Mlp {
  struct Params {
    Ints hidden{512, 512};
    double dropout = 0;
    std::string activation = "relu";
    template <class F>
    static void fields(F&& f) {
      f("hidden", &Params::hidden, allow::list(allow::range(1, 1 << 20), 0, 256), "width of each hidden layer");
      f("dropout", &Params::dropout, allow::below(0, 1), "part of activations dropped while training");
      f("activation", &Params::activation, allow::one_of({"relu", "gelu"}), "nonlinearity");
    }
  };
  static constexpr FamilyInfo info{
      .name = "mlp", .doc = "dense layers on flattened images", .weights = "fc1, fc2, ..."};

  static Value build(Net& net, const Params& p, const ModelInputs& in, Value x) {
    int i = 1;
    const auto dense = [&](Value y, int64_t out) {
      const std::string name = fmt::format("fc{}", i++);
      return y.ndim() == 4 ? linear_of_image(net, name, y, out) : linear(net, name, y, out);
    };
    Value y = x;
    for (int64_t width : p.hidden) y = dropout(net, activation(p.activation, dense(y, width)), p.dropout);
    return dense(y, in.classes);
  }

  static std::vector<Params> shrink(Params p, Ints&) {
    p.hidden = at_most(p.hidden, 2, 8);
    return {p};
  }
};

}  // namespace

extern const ModelFamily mlp_family;
constinit const ModelFamily mlp_family = make_family<Mlp>();

}  // namespace lathe
