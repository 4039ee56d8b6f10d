// A short hash of names (FNV-1a) that never changes: first values of tensors follow from it.
#pragma once

#include <cstdint>
#include <string_view>

namespace lathe {

// Of several names one after the other: `h` is the hash of those before.
constexpr uint32_t name_hash(std::string_view name, uint32_t h = 2166136261u) {
  for (const char c : name) h = (h ^ static_cast<uint8_t>(c)) * 16777619u;
  return h;
}

}  // namespace lathe
