// Samples that the program itself has in memory, as a source to train on.
#pragma once

#include <memory>

#include "data/source.h"

namespace lathe::data {

// `x` holds the samples one after another, each of the shape `sample`: [H, W, C], [H, W] (one channel) or [n] (plain
// numbers); `labels` has the class of each, in [0, classes). Nothing is copied: both arrays must stay as they are while
// the source is in use. UserError where sizes do not fit or a label is out of range.
//
// Floats go into the network as they are.
std::shared_ptr<const Source> array_source(std::span<const float> x, const Shape& sample,
                                           std::span<const int32_t> labels, int64_t classes);
// Pixels are normalised and augmented as the recipe says.
std::shared_ptr<const Source> array_source(std::span<const uint8_t> x, const Shape& sample,
                                           std::span<const int32_t> labels, int64_t classes);

}  // namespace lathe::data
