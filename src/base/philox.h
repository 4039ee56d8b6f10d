// Counter-based random numbers (Philox 4x32-10; Salmon et al., 2011): value = f(key, counter), no state.
// The same text of rounds is rendered for devices, so the numbers agree bit for bit on every backend.
#pragma once

#include <array>
#include <cstdint>

namespace lathe {

struct Philox {
  using Block = std::array<uint32_t, 4>;

  static constexpr Block generate(std::array<uint32_t, 2> key, Block counter) {
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
      const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
      counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
                 static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
      key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
    }
    return counter;
  }
};

// Uniform in [0, 1) with 24 bits: exact in f32.
constexpr float to_unit_float(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// Stream of numbers for one purpose: seed and stream id make the key, (a, b) and the index the counter.
class CounterRng {
 public:
  constexpr CounterRng(uint64_t seed, uint32_t stream, uint32_t a, uint32_t b)
      : key_{static_cast<uint32_t>(seed) ^ (stream * 0x9E3779B9u), static_cast<uint32_t>(seed >> 32) ^ stream},
        a_(a),
        b_(b) {}

  constexpr uint32_t bits(uint64_t index) const {
    const auto block =
        Philox::generate(key_, {static_cast<uint32_t>(index >> 2), static_cast<uint32_t>(index >> 34), a_, b_});
    return block[index & 3];
  }
  constexpr float uniform(uint64_t index) const { return to_unit_float(bits(index)); }
  // Unbiased enough for data order and augmentation: 64-bit multiply-shift of 32 random bits; n <= 2^32.
  constexpr uint64_t below(uint64_t index, uint64_t n) const { return (uint64_t{bits(index)} * n) >> 32; }

 private:
  std::array<uint32_t, 2> key_;
  uint32_t a_, b_;
};

}  // namespace lathe
