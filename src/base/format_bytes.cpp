#include "base/format_bytes.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace lathe {

ByteUnit byte_unit(int64_t bytes) {
  double size = 1;
  size_t unit = 0;
  while (std::fabs(static_cast<double>(bytes)) / size >= 1024 && unit + 1 < std::size(kByteUnits)) {
    size *= 1024;
    ++unit;
  }
  return {kByteUnits[unit], size};
}

std::string format_bytes(int64_t bytes) {
  const ByteUnit unit = byte_unit(bytes);
  return unit.bytes == 1 ? fmt::format("{} B", bytes)
                         : fmt::format("{:.1f} {}", static_cast<double>(bytes) / unit.bytes, unit.name);
}

}  // namespace lathe
