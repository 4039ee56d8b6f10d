// Sizes in memory, for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lathe {

inline constexpr std::string_view kByteUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};  // each 1024 times the last

std::string format_bytes(int64_t bytes);  // "12.3 MiB", "17 B"; negative ones as well

}  // namespace lathe
