// Generated images, for trials without files.
#include "data/synthetic.h"

#include "recipe/sources/fields.h"
#include "recipe/sources/source.h"

namespace lathe {
namespace {

struct Synthetic {
  static constexpr SourceFacts facts{
      .name = "synthetic",
      .targets = {data::LabelKind::class_index, data::LabelKind::value, data::LabelKind::mask, data::LabelKind::image},
      .reads_path = false,
      .generates = true};
  using Params = Sized;
  static constexpr int64_t kTrain = 4096, kTest = 1024;  // samples, unless the recipe says how many

  static data::SyntheticConfig config(const Recipe& r, data::Split split) {
    data::SyntheticConfig c;
    c.shape = Shape(r.data.source.params.as<Params>().shape);
    c.classes = r.data.classes;
    const int64_t n = wanted_samples(r, split);
    c.count = n > 0 ? n : split == data::Split::train ? kTrain : kTest;
    c.seed = static_cast<uint64_t>(r.seed);
    c.split = split;
    c.label = source_target(r);
    return c;
  }

  static data::SourceInfo describe(const Recipe& r, data::Split split) {
    return data::describe_synthetic(config(r, split));
  }

  static std::shared_ptr<const data::Source> open(const Recipe& r, data::Split split, Preparation&) {
    return data::make_synthetic(config(r, split));
  }
};

}  // namespace

extern const SourceRule synthetic_source;
constinit const SourceRule synthetic_source = make_source<Synthetic>();

}  // namespace lathe
