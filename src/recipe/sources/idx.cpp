// A folder of IDX files, named like MNIST's.
#include "data/formats/idx.h"

#include "recipe/sources/source.h"

namespace lathe {
namespace {

struct Idx {
  static constexpr SourceFacts facts{.name = "idx",
                                     .targets = {data::LabelKind::class_index, data::LabelKind::image},
                                     .path = "the folder of the IDX files"};

  static data::SourceInfo describe(const Recipe& r, data::Split split) {
    return data::describe_idx_folder(r.data.path, split, r.data.classes);
  }

  static std::shared_ptr<const data::Source> open(const Recipe& r, data::Split split, Preparation&) {
    return data::load_idx_folder(r.data.path, split, r.data.classes);
  }

  static bool has_test(const Recipe& r) { return data::has_idx_test(r.data.path); }
};

}  // namespace

extern const SourceRule idx_source;
constinit const SourceRule idx_source = make_source<Idx>();

}  // namespace lathe
