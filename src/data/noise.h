// Images with noise on them, to be restored.
#pragma once

#include <memory>

#include "data/source.h"

namespace lathe::data {

// Fields "image" u8[H, W, C] and "clean" u8[H, W, C] of a source whose field 0 is an image. The noise is bell-shaped,
// of this deviation (of 255), and the same each time that a sample is read.
std::unique_ptr<Source> with_noise(std::shared_ptr<const Source> images, double deviation, uint64_t seed);
SourceInfo describe_noise(const SourceInfo& images);  // Misfit when field 0 is no image

}  // namespace lathe::data
