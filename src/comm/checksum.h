// A checksum of bytes: finds bits that changed in memory or on their way, not forgery. A change within one word of 8
// bytes is always found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace lathe::comm {

inline uint64_t checksum(std::span<const std::byte> bytes) {
  // One to one in `h` and in `word`: what differs once stays different.
  const auto mix = [](uint64_t& h, uint64_t word) { h = (h ^ word) * 0x9E3779B97F4A7C15ull, h ^= h >> 29; };
  constexpr size_t kChains = 4;  // side by side: each waits for its product
  uint64_t h[kChains] = {bytes.size(), 1, 2, 3}, words[kChains];
  size_t i = 0;
  for (; i + sizeof words <= bytes.size(); i += sizeof words) {
    std::memcpy(words, bytes.data() + i, sizeof words);
    for (size_t k = 0; k < kChains; ++k) mix(h[k], words[k]);
  }
  for (uint64_t word; i + sizeof word <= bytes.size(); i += sizeof word) {
    std::memcpy(&word, bytes.data() + i, sizeof word);
    mix(h[0], word);
  }
  for (; i < bytes.size(); ++i) mix(h[0], std::to_integer<uint64_t>(bytes[i]));
  for (size_t k = 1; k < kChains; ++k) mix(h[0], h[k]);
  return h[0];
}

}  // namespace lathe::comm
