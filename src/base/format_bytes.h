// Sizes in memory, for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lathe {

inline constexpr std::string_view kByteUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};  // each 1024 times the last

struct ByteUnit {         // A unit of sizes.
  std::string_view name;  // of kByteUnits
  double bytes;           // in it
};
ByteUnit byte_unit(int64_t bytes);  // the largest that is no larger; "B" for less than one

std::string format_bytes(int64_t bytes);  // "12.3 MiB", "17 B"; negative ones as well

}  // namespace lathe
