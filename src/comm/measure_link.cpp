#include "comm/measure_link.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/stopwatch.h"
#include "comm/collectives.h"

namespace lathe::comm {
namespace {

constexpr double kSlowest = 400e6;  // bytes per second that fast links have at least
constexpr int kTag = 0;             // that of collectives: ranks take part in one thing after another

class Ring {
 public:
  Ring(Group& group, int64_t largest)
      : group_(group),
        left_((group.rank() + group.size() - 1) % group.size()),
        right_((group.rank() + 1) % group.size()),
        agreement_(group, 64),
        label_(agreement_.label("measurement of the link")),
        sent_(static_cast<size_t>(largest)),
        sum_(sent_.size()),
        room_(static_cast<size_t>(kAhead * std::min(kChunk, largest))) {
    agreement_.at(label_);
  }

  // Of so many turns with messages of so many bytes, on the slowest rank: the shortest of some rounds, which end when
  // they have taken `most` seconds and a few of them are done. All ranks get the same number, so they do the same
  // rounds.
  double seconds(int64_t turns, int64_t bytes, int rounds, double most) {
    constexpr int kFew = 5;
    double least = 1e30, all = 0;
    for (int i = 0; i < rounds && (i < kFew || all < most); ++i) {
      agreement_.barrier();
      const Stopwatch start;
      exchange(turns, bytes);
      double now = start.seconds();
      agreement_.all_reduce(std::as_writable_bytes(std::span(&now, 1)), DType::f64, Reduce::max);
      least = std::min(least, now);
      all += now;
    }
    return least;
  }

 private:
  static constexpr int64_t kChunk = kFastFlow.chunk, kAhead = kFastFlow.ahead;

  // As the ring of Collectives: in turn t a rank may send what corresponds to what it got in turn t - 1, several chunks
  // are under way, and half of what arrives is added up.
  void exchange(int64_t turns, int64_t bytes) {
    const Inside inside(group_.position(), label_);
    const int64_t chunk = std::min(kChunk, bytes), per_turn = (bytes + chunk - 1) / chunk, all = turns * per_turn;
    const auto piece = [&](std::vector<std::byte>& of, int64_t i) {
      const int64_t first = i % per_turn * chunk;
      return std::span(of).subspan(static_cast<size_t>(first), static_cast<size_t>(std::min(chunk, bytes - first)));
    };
    const auto slot = [](int64_t i) { return static_cast<size_t>(i % kAhead); };
    const auto room = [&](int64_t i) {
      return std::span(room_).subspan(slot(i) * static_cast<size_t>(chunk), piece(sum_, i).size());
    };
    std::array<Message, kAhead> sends, receives;
    int64_t sent = 0, asked = 0;
    for (int64_t i = 0; i < all; ++i) {
      for (; asked < std::min(all, i + kAhead); ++asked)
        receives[slot(asked)] = group_.receive(left_, kTag, room(asked));
      for (; sent < std::min({all, i + kAhead, i + per_turn}); ++sent) {
        group_.wait(sends[slot(sent)]);
        sends[slot(sent)] = group_.send(right_, kTag, piece(sent_, sent));
      }
      group_.wait(receives[slot(i)]);
      if (2 * i < all) reduce_into(piece(sum_, i), room(i), DType::f32, Reduce::sum);
    }
    for (Message& m : sends) group_.wait(m);
  }

  Group& group_;
  const int left_, right_;
  Collectives agreement_;
  const int32_t label_;
  std::vector<std::byte> sent_, sum_, room_;  // f32, all of them 0
};

}  // namespace

Flow flow_of(const LinkRates& link) { return link.bandwidth < kSlowest ? kSlowFlow : kFastFlow; }

LinkRates measure_link(Group& group) {
  constexpr int64_t kSmallest = sizeof(float), kFirst = int64_t{64} << 10, kLargest = int64_t{1} << 20;
  constexpr int64_t kTurns = 4, kLargeTurns = 2;
  constexpr double kShort = 5e-3;
  if (group.size() == 1) return {};
  Ring ring(group, kLargest);
  ring.seconds(1, kSmallest, 1, kShort);  // the first messages open connections
  LinkRates out;
  out.latency = ring.seconds(kTurns, kSmallest, 40, kShort) / kTurns;
  // Large messages tell more, and take longer.
  for (int64_t bytes = kFirst; bytes <= kLargest; bytes *= 4) {
    const double turn = ring.seconds(kLargeTurns, bytes, 8, kShort) / kLargeTurns;
    out.latency = std::min(out.latency, turn);
    // Where the noise is as large as what is measured, half of the time is that of bytes.
    out.bandwidth = static_cast<double>(bytes) / std::max({turn - out.latency, turn / 2, 1e-9});
    if (kLargeTurns * turn > kShort / 4) break;  // four times that, five times over, is too long
  }
  return out;
}

}  // namespace lathe::comm
