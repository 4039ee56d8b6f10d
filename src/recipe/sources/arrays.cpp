// Arrays that a program hands over (workload/own_data.h): floats, or the bytes of pixels.
#include "recipe/sources/source.h"

namespace lathe {
namespace {

struct FloatArrays {
  static constexpr SourceFacts facts{
      .name = kArraySource, .targets = " class value mask ", .reads_path = false, .own = true, .sized = true};
};

struct PixelArrays {
  static constexpr SourceFacts facts{.name = kPixelArraySource,
                                     .targets = " class value mask image ",
                                     .reads_path = false,
                                     .own = true,
                                     .sized = true};
};

}  // namespace

extern const SourceRule arrays_source, pixel_arrays_source;
constinit const SourceRule arrays_source = make_source<FloatArrays>();
constinit const SourceRule pixel_arrays_source = make_source<PixelArrays>();

}  // namespace lathe
