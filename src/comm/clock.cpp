#include "comm/clock.h"

#include <cstdlib>
#include <limits>
#include <span>

#include "comm/position.h"

namespace lathe::comm {
namespace {

constexpr int kClockTag = 1;  // beside those of collectives
constexpr int kRoundTrips = 16;

std::span<std::byte> bytes_of_time(int64_t& t) { return std::as_writable_bytes(std::span(&t, 1)); }

void answer(Group& group, const std::function<int64_t()>& now_ns) {
  for (int r = 1; r < group.size(); ++r)
    for (int i = 0; i < kRoundTrips; ++i) {
      int64_t time = 0;
      Message asked = group.receive(r, kClockTag, bytes_of_time(time));
      group.wait(asked);
      time = now_ns();
      Message answered = group.send(r, kClockTag, bytes_of_time(time));
      group.wait(answered);
    }
}

}  // namespace

ClockOffset find_clock_offset(Group& group, const std::function<int64_t()>& now_ns) {
  const Inside inside(group.position(), Position::kNoLabel);
  if (group.rank() == 0) {
    answer(group, now_ns);
    return {};
  }
  int64_t fastest = std::numeric_limits<int64_t>::max(), offset = 0;
  for (int i = 0; i < kRoundTrips; ++i) {
    int64_t sent = now_ns(), there = 0;
    Message answered = group.receive(0, kClockTag, bytes_of_time(there));
    Message asked = group.send(0, kClockTag, bytes_of_time(sent));
    group.wait(asked);
    group.wait(answered);
    const int64_t trip = now_ns() - sent;
    if (trip >= fastest) continue;
    fastest = trip;
    offset = there - (sent + trip / 2);
  }
  const int64_t uncertainty = fastest / 2 + 1;
  return std::abs(offset) <= uncertainty ? ClockOffset{0, uncertainty} : ClockOffset{offset, uncertainty};
}

}  // namespace lathe::comm
