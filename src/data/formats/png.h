// Folders of PNG files: folder/class/[...]/name.png. Each image is scaled so that it covers the wanted size, its middle
// is cut out, and it is kept in memory. Files are read in an order that is mixed but always the same.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/source.h"

namespace lathe::data {

struct PngConfig {
  std::string folder = {};  // with train/ and test/, or with the classes, of whose files every fifth is a test sample
  Shape shape{64, 64, 3};   // height, width, channels: 1 (grey) or 3
  LabelKind label = LabelKind::class_index;
  int64_t classes = 0;           // folders that there must be, for labels; 0: any number
  int64_t max_pixels = 1 << 24;  // larger images are left out
  int64_t limit = 0;             // read the first so many; 0: all
  double noise = 0;              // masks: deviation of the noise on the image
  uint64_t seed = 0;             // masks: of backgrounds and noise
};

// Fields "image" u8[shape], on white where it is transparent, and "label" i32[]: the number of its folder in the order
// of their names; or "mask" u8[H, W]: 1 where the image is opaque, 0 where a background shows through, which is a
// random gradient and under the same noise as the rest.
std::unique_ptr<Source> load_png_folder(const PngConfig&, Split);
SourceInfo describe_png_folder(const PngConfig&, Split);  // from the files' headers

struct PngImage {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> rgba;
};
// UserError with `name` for what is no PNG image, damaged, or of more than max_pixels.
PngImage decode_png(std::span<const std::byte> file, const std::string& name, int64_t max_pixels);
bool is_png(std::span<const std::byte> start);
// An image as a sample of load_png_folder: on white, scaled and cropped to the shape where `scale` is set; else it must
// have that size. UserError as decode_png has them.
std::vector<std::byte> read_png(const std::string& path, const Shape& shape, bool scale, int64_t max_pixels);
std::vector<std::string> png_class_names(const std::string& folder);  // its folders, in the order of the classes
// Covers height x width, keeping proportions; the middle. Colours count by their opacity.
PngImage scale_and_crop(const PngImage&, int64_t height, int64_t width);

}  // namespace lathe::data
