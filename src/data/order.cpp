#include "data/order.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/philox.h"

namespace lathe::data {
namespace {

constexpr uint32_t kOrderStream = 0x6f726472;  // "ordr"
constexpr int kRounds = 8;

// On fewer bits the rounds generate only part of all permutations; walking from 2^6 down to a smaller n costs little.
constexpr int kMinBits = 6;

}  // namespace

SampleOrder::SampleOrder(uint64_t seed, int64_t epoch, int64_t n, bool shuffle)
    : seed_(seed), epoch_(epoch), n_(n), shuffle_(shuffle) {
  LATHE_CHECK(n >= 1 && n <= int64_t{1} << 62, "n is {}", n);
  const int bits = std::max(kMinBits, static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1))));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
}

// A Feistel network permutes [0, 2^bits): each round adds a function of one half to the other, whatever that function
// is. Values >= n are fed in again (cycle walking; Black and Rogaway, 2002): the cycle through a value < n returns to
// one, so the walk ends and the result is a permutation of [0, n). 2^bits < 2n, so fewer than two walks on average
// (n > 32).
int64_t SampleOrder::operator()(int64_t position) const {
  LATHE_CHECK(position >= 0 && position < n_, "position {} of {}", position, n_);
  if (!shuffle_) return position;
  const auto epoch = static_cast<uint64_t>(epoch_);
  const std::array<uint32_t, 2> key{static_cast<uint32_t>(seed_) ^ kOrderStream, static_cast<uint32_t>(seed_ >> 32)};
  const uint32_t low_mask = (uint32_t{1} << low_bits_) - 1;
  const uint32_t high_mask = (uint32_t{1} << high_bits_) - 1;
  auto value = static_cast<uint64_t>(position);
  do {
    auto low = static_cast<uint32_t>(value) & low_mask;
    auto high = static_cast<uint32_t>(value >> low_bits_);
    for (uint32_t round = 0; round < kRounds; ++round) {
      const bool even = round % 2 == 0;
      const auto block = Philox::generate(
          key, {even ? high : low, round, static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32)});
      if (even) {
        low ^= block[0] & low_mask;
      } else {
        high ^= block[0] & high_mask;
      }
    }
    value = uint64_t{high} << low_bits_ | low;
  } while (value >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(value);
}

}  // namespace lathe::data
