#include "plan/lanes.h"

#include <algorithm>
#include <array>

namespace lathe {
namespace {

constexpr int32_t kNothing = kStepBegin - 1;

// By lane: the last launch of it that is done, and with it all before. A vector clock.
using Done = std::array<int32_t, std::size(kLanes)>;

void join(Done& into, const Done& other) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

bool overlap(const Buffer& a, const Buffer& b) {
  return a.bytes > 0 && b.bytes > 0 && a.segment == b.segment && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}

bool overlap(const std::vector<Buffer>& list, const Buffer& b) {
  return std::ranges::any_of(list, [&](const Buffer& a) { return overlap(a, b); });
}

// `writer` writes what `other` reads or writes.
bool writes_into(const KernelArgs& writer, const KernelArgs& other) {
  const auto hits = [&](const Buffer& b) {
    return overlap(other.out, b) || overlap(other.in, b) || overlap(other.workspace, b);
  };
  return std::ranges::any_of(writer.out, hits) || hits(writer.workspace);
}

bool conflict(const KernelArgs& a, const KernelArgs& b) { return writes_into(a, b) || writes_into(b, a); }

class WaitPlacement {
 public:
  explicit WaitPlacement(Program& p) : p_(p), done_(p.launches.size()) {
    for (Done& f : front_) f.fill(kNothing);
    front_[index(Lane::compute)] = kBegin;
  }

  void run() {
    for (size_t i = 0; i < p_.launches.size(); ++i) {
      Launch& l = p_.launches[i];
      Done& front = front_[index(l.lane)];
      l.waits = needed(l, front);
      add_waits(l.waits, front);
      front[index(l.lane)] = static_cast<int32_t>(i);
      done_[i] = front;
      on_lane_[index(l.lane)].push_back(static_cast<int32_t>(i));
    }
    Done& end = front_[index(Lane::compute)];
    for (const auto& list : on_lane_)
      if (!list.empty() && end[index(lane_of(list.back()))] < list.back()) p_.end_waits.push_back(list.back());
    drop_implied(p_.end_waits);
    add_waits(p_.end_waits, end);
  }

 private:
  static constexpr Done kBegin = [] {
    Done d{};
    d.fill(kNothing);
    d[static_cast<size_t>(Lane::compute)] = kStepBegin;
    return d;
  }();

  static size_t index(Lane lane) { return static_cast<size_t>(lane); }
  Lane lane_of(int32_t i) const { return i == kStepBegin ? Lane::compute : p_.launches[static_cast<size_t>(i)].lane; }
  // What is done when launch i is.
  const Done& done(int32_t i) const { return i == kStepBegin ? kBegin : done_[static_cast<size_t>(i)]; }

  // Of each other lane the last launch that must come first, if that is not known to be done.
  std::vector<int32_t> needed(const Launch& l, const Done& known) const {
    std::vector<int32_t> waits;
    for (size_t lane = 0; lane < on_lane_.size(); ++lane) {
      if (lane == index(l.lane)) continue;
      const auto& list = on_lane_[lane];
      auto other = list.rbegin();
      while (other != list.rend() && *other > known[lane] &&
             !conflict(p_.launches[static_cast<size_t>(*other)].args, l.args))
        ++other;
      if (other != list.rend() && *other > known[lane])
        waits.push_back(*other);
      else if (lane == index(Lane::compute) && known[lane] < kStepBegin)
        waits.push_back(kStepBegin);
    }
    drop_implied(waits);
    return waits;
  }

  void drop_implied(std::vector<int32_t>& waits) const {
    const std::vector<int32_t> all = waits;
    std::erase_if(waits, [&](int32_t a) {
      return std::ranges::any_of(all, [&](int32_t b) { return b != a && done(b)[index(lane_of(a))] >= a; });
    });
    std::ranges::sort(waits);
  }

  void add_waits(const std::vector<int32_t>& waits, Done& known) {
    for (int32_t w : waits) {
      join(known, done(w));
      (w == kStepBegin ? p_.begin_signals : p_.launches[static_cast<size_t>(w)].signals) = true;
    }
  }

  Program& p_;
  std::vector<Done> done_;                                       // by launch
  std::array<Done, std::size(kLanes)> front_;                    // by lane: when its launches so far are done
  std::array<std::vector<int32_t>, std::size(kLanes)> on_lane_;  // by lane: its launches so far
};

}  // namespace

void place_waits(Program& p) {
  p.begin_signals = false;
  p.end_waits.clear();
  for (Launch& l : p.launches) {
    l.waits.clear();
    l.signals = false;
  }
  if (p.has_lanes()) WaitPlacement(p).run();
}

}  // namespace lathe
