#include "session/state_parts.h"

#include <algorithm>

#include "backend/host_device.h"
#include "comm/collectives.h"
#include "ir/placement.h"

namespace lathe {
namespace {

int axis_of(const StateSpec& s) { return static_cast<int>(s.part.axis); }

// f(byte of the whole, byte of the part, bytes) for each run that the elements `own` of the axis have.
template <class F>
void each_run(const StateSpec& s, const Part& own, F&& f) {
  const int64_t size = size_of(s.type.dtype);
  for_each_run(s.whole_type().shape, axis_of(s), own,
               [&](int64_t whole, int64_t part, int64_t count) { f(whole * size, part * size, count * size); });
}

}  // namespace

int64_t largest_whole(const StateTable& state) {
  int64_t bytes = 0;
  for (const StateSpec& s : state)
    if (s.part.is_part()) bytes = std::max(bytes, s.whole_type().bytes());
  return bytes;
}

void read_whole_state(Executor& e, const StateSpec& s, std::span<std::byte> whole, std::span<std::byte> room) {
  if (!s.part.is_part()) return e.read_state(s.name, whole);
  comm::Collectives& ranks = host_device(e.device()).collectives();
  const int64_t units = s.whole_type().shape[axis_of(s)], unit = static_cast<int64_t>(whole.size()) / units;
  const auto place = [&](int rank) { return part_of(units, ranks.size(), rank).first * unit; };
  // The parts, one after another.
  e.read_state(s.name, room.subspan(static_cast<size_t>(place(ranks.rank())), static_cast<size_t>(s.type.bytes())));
  ranks.all_gather(room, unit);
  for (int r = 0; r < ranks.size(); ++r)
    each_run(s, part_of(units, ranks.size(), r), [&](int64_t to, int64_t from, int64_t bytes) {
      std::copy_n(room.data() + place(r) + from, bytes, whole.data() + to);
    });
}

void write_whole_state(Executor& e, const StateSpec& s, std::span<const std::byte> whole, std::span<std::byte> room) {
  if (!s.part.is_part()) return e.write_state(s.name, whole);
  const std::span<std::byte> part = room.first(static_cast<size_t>(s.type.bytes()));
  each_run(s, s.own(),
           [&](int64_t from, int64_t to, int64_t bytes) { std::copy_n(whole.data() + from, bytes, part.data() + to); });
  e.write_state(s.name, part);
}

void WholeState::resize(int64_t bytes) {
  bytes_ = static_cast<size_t>(bytes);
  if (reserved_.size() >= 2 * bytes_) {
    all_ = reserved_;
    return;
  }
  own_.resize(std::max(own_.size(), 2 * bytes_));
  all_ = own_;
}

int64_t elements_before(const StateSpec& s, int64_t at) {
  if (!s.part.is_part()) return at;
  const Shape whole = s.whole_type().shape;
  int64_t inner = 1;
  for (int i = axis_of(s) + 1; i < whole.ndim(); ++i) inner *= whole[i];
  const int64_t row = whole[axis_of(s)] * inner, own = s.own().size() * inner;
  return at / row * own + std::clamp<int64_t>(at % row - s.own().first * inner, 0, own);
}

}  // namespace lathe
