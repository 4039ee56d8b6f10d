#include "base/format_bytes.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace lathe {

std::string format_bytes(int64_t bytes) {
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::fabs(value) >= 1024 && unit + 1 < std::size(kByteUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kByteUnits[unit]);
}

}  // namespace lathe
