// What the collectives of comm/collectives.h send: the costs of ops and the predictions of plans follow from it.
#pragma once

#include <bit>
#include <cstdint>

namespace lathe {

struct Traffic {     // Of one rank.
  double turns = 0;  // messages that wait for each other
  double bytes = 0;  // that it sends
};

inline constexpr int64_t kSmallSum = 8192;  // bytes up to which a sum over ranks is made by doubling

// So many times round a ring; each time a rank sends the parts of all others, in as many turns.
inline Traffic ring_traffic(int64_t bytes, int64_t ranks, int rounds) {
  const auto others = static_cast<double>(ranks - 1);
  return {rounds * others, rounds * static_cast<double>(bytes) * others / static_cast<double>(ranks)};
}

// The sum of all ranks' buffers, on every rank. By doubling, pairs exchange all they have; ranks beyond the largest
// power of two give theirs to a partner before, and get the sum after.
inline Traffic sum_traffic(int64_t bytes, int64_t ranks) {
  if (bytes > kSmallSum) return ring_traffic(bytes, ranks, 2);
  const int doublings = static_cast<int>(std::bit_width(static_cast<uint64_t>(ranks))) - 1;
  const bool beyond = !std::has_single_bit(static_cast<uint64_t>(ranks));
  return {doublings + (beyond ? 2.0 : 0.0), static_cast<double>(bytes) * (doublings + (beyond ? 1 : 0))};
}

}  // namespace lathe
