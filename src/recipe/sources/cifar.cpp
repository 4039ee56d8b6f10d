// A folder of CIFAR-10 or CIFAR-100 in the binary version.
#include "data/formats/cifar.h"

#include "recipe/sources/source.h"

namespace lathe {
namespace {

struct Cifar {
  static constexpr SourceFacts facts{.name = "cifar",
                                     .targets = {data::LabelKind::class_index, data::LabelKind::image},
                                     .path = "the folder of the CIFAR files (binary version)",
                                     .shape = {32, 32, 3}};

  static int64_t classes(const Recipe& r) {
    return label_kind_of(r) == data::LabelKind::class_index ? r.data.classes : 0;
  }

  static data::SourceInfo describe(const Recipe& r, data::Split split) {
    return data::describe_cifar(r.data.path, split, classes(r));
  }

  static std::shared_ptr<const data::Source> open(const Recipe& r, data::Split split, Preparation&) {
    return data::load_cifar(r.data.path, split, classes(r));
  }

  static std::vector<std::string> class_names(const Recipe& r) {
    return data::cifar_class_names(r.data.path, r.data.classes);
  }

  static bool has_test(const Recipe& r) { return data::has_cifar_test(r.data.path); }
};

}  // namespace

extern const SourceRule cifar_source;
constinit const SourceRule cifar_source = make_source<Cifar>();

}  // namespace lathe
