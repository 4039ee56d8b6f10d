#include "nn/families/model.h"
#include "nn/layers.h"

namespace lathe {
namespace {

struct Cnn {
  struct Params {
    Ints channels{32, 64};
    int64_t dense = 128;
    double dropout = 0;
    bool batch_norm = true;
    std::string activation = "relu";
    template <class F>
    static void fields(F&& f) {
      f("channels", &Params::channels, allow::list(allow::range(1, 65536), 1, 16),
        "channels of each stage; a stage halves the image");
      f("dense", &Params::dense, allow::range(0, 1 << 20), "width of the dense layer before the output; 0: none");
      f("dropout", &Params::dropout, allow::below(0, 1), "part of activations dropped while training");
      f("batch_norm", &Params::batch_norm, "batch normalisation after each convolution");
      f("activation", &Params::activation, allow::one_of({"relu", "gelu"}), "nonlinearity");
    }
  };
  static constexpr FamilyInfo info{.name = "cnn",
                                   .doc = "convolution, norm, activation and pooling blocks, then dense layers",
                                   .weights = "conv1, bn1, ..., fc1"};

  // Per entry of `channels`: 3x3 convolution, 2x2 max pooling, batch norm, activation. Pooling comes first because it
  // is the same for a rising activation, and the norm and the activation then touch a quarter of the elements. Then a
  // dense layer (dense > 0) and the head.
  static Value build(Net& net, const Params& p, const ModelInputs& in, Value x) {
    int i = 1;
    for (int64_t channels : p.channels) {
      x = max_pool2d(conv2d(net, fmt::format("conv{}", i), x, channels, {.bias = !p.batch_norm}), 2, 2);
      if (p.batch_norm) x = batch_norm(net, fmt::format("bn{}", i), x);
      x = activation(p.activation, x);
      ++i;
    }
    if (p.dense == 0) return linear_of_image(net, "fc1", dropout(net, x, p.dropout), in.classes);
    const Value y = dropout(net, activation(p.activation, linear_of_image(net, "fc1", x, p.dense)), p.dropout);
    return linear(net, "fc2", y, in.classes);
  }

  static void check_sample(const Params& p, const ModelInputs&, const TensorType& sample, RuleReport& report) {
    const int64_t h = sample.shape[0], w = sample.shape[1];
    if (std::min(h, w) >> p.channels.size() == 0)
      report.fail({"channels"},
                  fmt::format("expected few enough stages for images of {} x {} (each halves the image), got {}", h, w,
                              p.channels.size()));
  }

  static std::vector<Params> shrink(Params p, Ints&) {
    p.channels = at_most(p.channels, 2, 4);
    p.dense = at_most(p.dense, 8);
    return {p};
  }
};

}  // namespace

extern const ModelFamily cnn_family;
constinit const ModelFamily cnn_family = make_family<Cnn>();

}  // namespace lathe
