// Samples that the program itself has in memory, as a source to train on.
#pragma once

#include <memory>

#include "data/source.h"

namespace lathe::data {

// What is to be predicted of each sample, in the order of the samples. Points to the caller's memory.
class ArrayLabels {
 public:
  static ArrayLabels classes(std::span<const int32_t> labels, int64_t classes);  // each in [0, classes)
  // `each` finite numbers per sample, in any units, which may differ by column: training
  // standardises them column by column, results are in these units.
  static ArrayLabels values(std::span<const float> values, int64_t each = 1);
  // A class in [0, classes) for each pixel, row by row; at most 256 classes.
  static ArrayLabels masks(std::span<const uint8_t> pixels, int64_t classes);
  static ArrayLabels images(std::span<const uint8_t> pixels);  // of the same shape as a sample, which must be pixels

 private:
  friend class ArraySource;
  LabelKind kind_ = LabelKind::class_index;
  std::span<const std::byte> bytes_;
  int64_t number_ = 1;  // classes, or values of each sample
};

// `x` holds the samples one after another, each of the shape `sample`: [H, W, C], [H, W] (one channel) or [n] (plain
// numbers). Nothing is copied: all arrays must stay as they are while the source is in use. UserError where sizes do
// not fit, or a target is out of range.
//
// Floats go into the network as they are.
std::shared_ptr<const Source> array_source(std::span<const float> x, const Shape& sample, const ArrayLabels&);
// Pixels are normalised and augmented as the recipe says.
std::shared_ptr<const Source> array_source(std::span<const uint8_t> x, const Shape& sample, const ArrayLabels&);

// The same with ArrayLabels::classes(labels, classes).
std::shared_ptr<const Source> array_source(std::span<const float> x, const Shape& sample,
                                           std::span<const int32_t> labels, int64_t classes);
// The same for pixels.
std::shared_ptr<const Source> array_source(std::span<const uint8_t> x, const Shape& sample,
                                           std::span<const int32_t> labels, int64_t classes);

}  // namespace lathe::data
