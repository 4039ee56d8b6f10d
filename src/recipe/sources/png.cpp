// Folders of PNG files, scaled and cropped to one size.
#include "data/formats/png.h"

#include <fmt/format.h>

#include "recipe/sources/source.h"

namespace lathe {
namespace {

struct Png {
  static constexpr SourceFacts facts{.name = "png",
                                     .targets = " class mask image ",
                                     .path = "a folder with a folder of PNG files for each class",
                                     .sized = true,
                                     .scales = true,
                                     .noisy_masks = true,
                                     .mask_classes = 2};

  static data::PngConfig config(const Recipe& r, data::Split split) {
    return {.folder = r.data.path,
            .shape = Shape(r.data.shape),
            .target = target_of(r),
            .classes = r.data.target == "class" ? r.data.classes : 0,
            .max_pixels = r.data.max_pixels,
            .limit = wanted_samples(r, split),
            .noise = r.data.noise,
            .seed = split == data::Split::train ? 0u : 1u};
  }

  static void check(const Recipe& r, RuleReport& report) {
    if (r.data.shape[2] != 1 && r.data.shape[2] != 3)
      report.fail({"data.shape"}, fmt::format("expected 1 or 3 channels of PNG files, got {}", r.data.shape[2]));
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
