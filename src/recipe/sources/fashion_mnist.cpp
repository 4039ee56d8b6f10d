// Fashion-MNIST: the installed files, or a folder of them.
#include "data/formats/idx.h"
#include "recipe/sources/source.h"

namespace lathe {
namespace {

struct FashionMnist {
  static constexpr SourceFacts facts{.name = "fashion_mnist",
                                     .targets = {data::LabelKind::class_index, data::LabelKind::image},
                                     .shape = {28, 28, 1},
                                     .classes = 10};

  static data::SourceInfo describe(const Recipe& r, data::Split split) {
    return data::describe_fashion_mnist(r.data.path, split);
  }

  static std::shared_ptr<const data::Source> open(const Recipe& r, data::Split split, Preparation&) {
    return data::load_fashion_mnist(r.data.path, split);
  }

  static std::vector<std::string> class_names(const Recipe&) { return data::fashion_mnist_class_names(); }

  // What is installed is complete.
  static bool has_test(const Recipe& r) { return r.data.path.empty() || data::has_idx_test(r.data.path); }
};

}  // namespace

extern const SourceRule fashion_mnist_source;
constinit const SourceRule fashion_mnist_source = make_source<FashionMnist>();

}  // namespace lathe
