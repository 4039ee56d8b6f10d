// Arrays that a program hands over (workload/custom_data.h): floats, or the bytes of pixels.
#include <fmt/format.h>

#include "recipe/sources/fields.h"
#include "recipe/sources/source.h"

namespace lathe {
namespace {

using data::LabelKind;

struct Arrays {
  struct Params : Sized {
    Doubles target_mean{0.0}, target_scale{1.0};

    static void fields(auto&& f) {
      Sized::fields(f);
      f("target_mean", &Params::target_mean, allow::list(allow::range(-1e300, 1e300), 1, 1000000),
        "written by training: the mean of the numbers to predict; one for all, or one per number of a sample")
          .is_fixed()
          .needs = kValues;
      f("target_scale", &Params::target_scale, allow::list(allow::above(0, 1e300), 1, 1000000),
        "written by training: their deviation; the net predicts (number - mean) / deviation")
          .is_fixed()
          .needs = kValues;
    }
    static constexpr std::string_view kValues = "arrays of a program with data.target = \"value\"";
  };

  static bool used(const Recipe& r, const Field& f) {
    return f.name == "shape" || label_kind_of(r) == data::LabelKind::value;
  }

  static void check(const Recipe& r, RuleReport& report) {
    if (label_kind_of(r) != data::LabelKind::value) return;
    const Params& p = r.data.source.params.as<Params>();
    const size_t means = p.target_mean.size(), scales = p.target_scale.size();
    if (means != 1 && static_cast<int64_t>(means) != r.data.classes)
      report.fail({"data.target_mean", "data.classes"},
                  fmt::format("expected 1 number or one for each of {} (data.classes), got {}", r.data.classes, means));
    if (means != scales)
      report.fail({"data.target_scale", "data.target_mean"},
                  fmt::format("expected as many numbers as data.target_mean ({}), got {}", means, scales));
  }
};

struct FloatArrays : Arrays {
  static constexpr SourceFacts facts{
      .name = "arrays",
      .targets = {data::LabelKind::class_index, data::LabelKind::value, data::LabelKind::mask},
      .reads_path = false,
      .own = DType::f32};
};

struct PixelArrays : Arrays {
  static constexpr SourceFacts facts{
      .name = "pixel_arrays",
      .targets = {data::LabelKind::class_index, data::LabelKind::value, data::LabelKind::mask, data::LabelKind::image},
      .reads_path = false,
      .own = DType::u8};
};

}  // namespace

extern const SourceRule arrays_source, pixel_arrays_source;
constinit const SourceRule arrays_source = make_source<FloatArrays>();
constinit const SourceRule pixel_arrays_source = make_source<PixelArrays>();

}  // namespace lathe
