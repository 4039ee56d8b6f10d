// Folders of PNG files, scaled and cropped to one size.
#include "data/formats/png.h"

#include <fmt/format.h>

#include "recipe/sources/fields.h"
#include "recipe/sources/source.h"

namespace lathe {
namespace {

struct Png {
  static constexpr SourceFacts facts{
      .name = "png",
      .targets = {data::LabelKind::class_index, data::LabelKind::mask, data::LabelKind::image},
      .path = "a folder with a folder of PNG files for each class",
      .scales = true,
      .noisy_masks = true,
      .mask_classes = 2};

  struct Params : Sized {
    int64_t max_pixels = 1 << 24;

    static void fields(auto&& f) {
      f("max_pixels", &Params::max_pixels, allow::range(1, 1 << 28), "larger images are left out")
          .listed_after("data.noise");
      Sized::fields(f);
    }
  };

  static data::PngConfig config(const Recipe& r, data::Split split) {
    const Params& p = r.data.source.params.as<Params>();
    return {.folder = r.data.path,
            .shape = Shape(p.shape),
            .label = source_target(r),
            .classes = label_kind_of(r) == data::LabelKind::class_index ? r.data.classes : 0,
            .max_pixels = p.max_pixels,
            .limit = wanted_samples(r, split),
            .noise = r.data.noise,
            .seed = split == data::Split::train ? 0u : 1u};
  }

  static void check(const Recipe& r, RuleReport& report) {
    const int64_t channels = r.data.source.params.as<Params>().shape[2];
    if (channels != 1 && channels != 3)
      report.fail({"data.shape"}, fmt::format("expected 1 or 3 channels of PNG files, got {}", channels));
  }

  static data::SourceInfo describe(const Recipe& r, data::Split split) {
    return data::describe_png_folder(config(r, split), split);
  }

  static std::shared_ptr<const data::Source> open(const Recipe& r, data::Split split, Preparation&) {
    return data::load_png_folder(config(r, split), split);
  }

  static std::vector<std::string> class_names(const Recipe& r) { return data::png_class_names(r.data.path); }
};

}  // namespace

extern const SourceRule png_source;
constinit const SourceRule png_source = make_source<Png>();

}  // namespace lathe
