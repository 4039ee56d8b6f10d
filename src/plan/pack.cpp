#include "plan/pack.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/checked.h"
#include "base/philox.h"

namespace lathe {
namespace {

// Work that all orders together may cost, in visited intervals: about 0.1 s. What one order has used up is missing for
// the next; the order by time needs none of it.
constexpr int64_t kWork = 60'000'000;
// Good enough to stop: one part in 100 over the lower bound.
constexpr int64_t kCloseEnough = 100;
constexpr uint32_t kRandomOrders = 400;

struct Item {
  int64_t size;  // rounded up
  int32_t first, last;
  int32_t index;  // of the caller
};

// The lowest address >= at where `size` bytes do not cross a chunk.
int64_t fit_chunk(int64_t at, int64_t size, int64_t chunk) {
  if (at + size <= chunk) return at;  // without a division: most plans have one chunk
  return at / chunk == (at + size - 1) / chunk ? at : (at / chunk + 1) * chunk;
}

// Places items one by one, each into the smallest gap between the items of its time that holds it, else on top.
// Placed items are kept in lists sorted by offset, by windows of time, so that a short interval looks at the
// items of its own window only.
class GapPlacer {
 public:
  GapPlacer(const PackSpace& space, int32_t times, size_t count) : space_(space), offsets_(count, 0) {
    for (int32_t windows : {1, 8, 64}) {
      Level level;
      level.width = std::max<int32_t>(1, (times + windows - 1) / windows);
      level.lists.resize(static_cast<size_t>(times / level.width) + 1);
      levels_.push_back(std::move(level));
    }
  }

  // False when the work is used up.
  bool place(const Item& item, int64_t& work) {
    const std::vector<Placed>& list = candidates(item);
    work -= static_cast<int64_t>(list.size()) + 16;
    if (work < 0) return false;
    int64_t top = space_.base, best = -1, best_gap = 0;
    for (const Placed& p : list) {
      if (p.last < item.first || p.first > item.last) continue;
      const int64_t at = fit_chunk(top, item.size, space_.chunk), gap = p.begin - at;
      if (gap >= item.size && (best < 0 || gap < best_gap)) {
        best = at;
        best_gap = gap;
        if (gap == item.size) break;
      }
      top = std::max(top, p.end);
    }
    const int64_t at = best >= 0 ? best : fit_chunk(top, item.size, space_.chunk);
    offsets_[static_cast<size_t>(item.index)] = at;
    end_ = std::max(end_, at + item.size);
    insert({at, at + item.size, item.first, item.last}, work);
    return true;
  }

  int64_t end() const { return end_; }
  std::vector<int64_t>& offsets() { return offsets_; }

 private:
  struct Placed {
    int64_t begin, end;
    int32_t first, last;
  };
  struct Level {
    int32_t width;
    std::vector<std::vector<Placed>> lists;
  };

  const std::vector<Placed>& candidates(const Item& item) const {
    for (size_t i = levels_.size(); i-- > 1;) {
      const Level& level = levels_[i];
      if (item.first / level.width == item.last / level.width)
        return level.lists[static_cast<size_t>(item.first / level.width)];
    }
    return levels_[0].lists[0];
  }

  void insert(const Placed& p, int64_t& work) {
    for (Level& level : levels_) {
      const bool whole = &level == &levels_[0];
      const int32_t from = whole ? 0 : p.first / level.width, to = whole ? 0 : p.last / level.width;
      for (int32_t w = from; w <= to; ++w) {
        auto& list = level.lists[static_cast<size_t>(w)];
        const auto at = std::upper_bound(list.begin(), list.end(), p,
                                         [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
        work -= (list.end() - at) / 8 + 1;  // moved as one block of memory
        list.insert(at, p);
      }
    }
  }

  PackSpace space_;
  std::vector<Level> levels_;
  std::vector<int64_t> offsets_;
  int64_t end_ = 0;
};

// Runs through time with a list of free blocks, as an allocator would: best fit, blocks joined when freed.
class TimePlacer {
 public:
  TimePlacer(const PackSpace& space, size_t count) : space_(space), offsets_(count, 0), top_(space.base) {}

  void run(std::vector<Item> items) {
    std::ranges::sort(items, [](const Item& a, const Item& b) {
      if (a.first != b.first) return a.first < b.first;
      if (a.size != b.size) return a.size > b.size;
      return a.index < b.index;
    });
    std::multimap<int32_t, Item> live;  // by last
    for (const Item& item : items) {
      while (!live.empty() && live.begin()->first < item.first) {
        const Item& dead = live.begin()->second;
        release(offsets_[static_cast<size_t>(dead.index)], dead.size);
        live.erase(live.begin());
      }
      offsets_[static_cast<size_t>(item.index)] = take(item.size);
      live.emplace(item.last, item);
    }
  }

  int64_t end() const { return top_; }
  std::vector<int64_t>& offsets() { return offsets_; }

 private:
  int64_t take(int64_t size) {
    for (auto it = by_size_.lower_bound({size, 0}); it != by_size_.end(); ++it) {
      const auto [bytes, begin] = *it;
      const int64_t at = fit_chunk(begin, size, space_.chunk);
      if (at + size > begin + bytes) continue;
      drop(begin, bytes);
      add(begin, at - begin);
      add(at + size, begin + bytes - at - size);
      return at;
    }
    // At the top, joined with a free block that ends there.
    int64_t begin = top_;
    if (!by_offset_.empty()) {
      const auto last = std::prev(by_offset_.end());
      if (last->first + last->second == top_) {
        begin = last->first;
        drop(last->first, last->second);
      }
    }
    const int64_t at = fit_chunk(begin, size, space_.chunk);
    add(begin, at - begin);
    top_ = at + size;
    return at;
  }

  void release(int64_t begin, int64_t bytes) {
    auto next = by_offset_.lower_bound(begin);
    if (next != by_offset_.end() && next->first == begin + bytes) {
      bytes += next->second;
      drop(next->first, next->second);
    }
    next = by_offset_.lower_bound(begin);
    if (next != by_offset_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == begin) {
        begin = before->first;
        bytes += before->second;
        drop(before->first, before->second);
      }
    }
    add(begin, bytes);
  }

  void add(int64_t begin, int64_t bytes) {
    if (bytes <= 0) return;
    by_offset_[begin] = bytes;
    by_size_.insert({bytes, begin});
  }
  void drop(int64_t begin, int64_t bytes) {
    by_offset_.erase(begin);
    by_size_.erase({bytes, begin});
  }

  PackSpace space_;
  std::vector<int64_t> offsets_;
  std::map<int64_t, int64_t> by_offset_;
  std::set<std::pair<int64_t, int64_t>> by_size_;
  int64_t top_;
};

using Less = bool (*)(const Item&, const Item&);

bool by_size(const Item& a, const Item& b) {
  if (a.size != b.size) return a.size > b.size;
  if (a.last - a.first != b.last - b.first) return a.last - a.first > b.last - b.first;
  return a.index < b.index;
}
bool by_lifetime(const Item& a, const Item& b) {
  if (a.last - a.first != b.last - b.first) return a.last - a.first > b.last - b.first;
  if (a.size != b.size) return a.size > b.size;
  return a.index < b.index;
}
bool by_area(const Item& a, const Item& b) {
  const auto area = [](const Item& i) { return static_cast<double>(i.size) * (i.last - i.first + 1); };
  if (area(a) != area(b)) return area(a) > area(b);
  return a.index < b.index;
}

}  // namespace

LivePeak find_peak(std::span<const Interval> intervals, int64_t alignment) {
  int32_t times = 0;
  for (const Interval& i : intervals) times = std::max(times, i.last + 1);
  std::vector<int64_t> change(static_cast<size_t>(times) + 1, 0);
  for (const Interval& i : intervals) {
    change[static_cast<size_t>(i.first)] += round_up(i.bytes, alignment);
    change[static_cast<size_t>(i.last) + 1] -= round_up(i.bytes, alignment);
  }
  LivePeak peak;
  int64_t live = 0;
  for (int32_t t = 0; t < times; ++t) {
    live += change[static_cast<size_t>(t)];
    if (live > peak.bytes) peak = {t, live};
  }
  return peak;
}

Packing pack(std::span<const Interval> intervals, const PackSpace& space) {
  LATHE_CHECK(space.chunk % space.alignment == 0 && space.base % space.alignment == 0);
  Packing best;
  best.offsets.assign(intervals.size(), space.base);
  best.end = space.base;
  std::vector<Item> items;
  int32_t times = 0;
  for (size_t i = 0; i < intervals.size(); ++i) {
    const Interval& v = intervals[i];
    LATHE_CHECK(v.bytes >= 0 && v.first >= 0 && v.first <= v.last);
    if (v.bytes == 0) continue;
    const int64_t size = round_up(v.bytes, space.alignment);
    LATHE_CHECK(size <= space.chunk, "{} bytes do not fit into a chunk of {}", size, space.chunk);
    items.push_back({size, v.first, v.last, static_cast<int32_t>(i)});
    times = std::max(times, v.last + 1);
  }
  const LivePeak peak = find_peak(intervals, space.alignment);
  best.lower_bound = peak.bytes;
  if (items.empty()) return best;

  const auto close_enough = [&] { return best.end - space.base <= peak.bytes + peak.bytes / kCloseEnough; };
  TimePlacer by_time(space, intervals.size());
  by_time.run(items);
  best.end = by_time.end();
  best.offsets = std::move(by_time.offsets());

  int64_t work = kWork;
  const auto try_order = [&](const std::vector<Item>& order) {
    GapPlacer placer(space, times, intervals.size());
    for (const Item& item : order) {
      if (!placer.place(item, work)) return;
      if (placer.end() >= best.end) return;  // already no better
    }
    best.end = placer.end();
    best.offsets = std::move(placer.offsets());
  };
  for (Less less : {by_size, by_area, by_lifetime}) {
    if (close_enough()) break;
    std::vector<Item> order = items;
    std::ranges::sort(order, less);
    try_order(order);
    if (close_enough()) break;
    // The items of the peak first: they stack without a gap, and the others go where they leave room.
    std::stable_partition(order.begin(), order.end(),
                          [&](const Item& i) { return i.first <= peak.time && i.last >= peak.time; });
    try_order(order);
  }
  // Small plans can afford to look around: sizes weighted at random (but the same every time) give other orders.
  for (uint32_t round = 0; round < kRandomOrders && work > 0 && !close_enough(); ++round) {
    const CounterRng rng(round, 0, 0, 0);
    std::vector<std::pair<double, Item>> weighted;
    for (const Item& i : items)
      weighted.push_back({static_cast<double>(i.size) * (0.25 + rng.uniform(static_cast<uint64_t>(i.index))), i});
    std::ranges::stable_sort(weighted, [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<Item> order;
    for (const auto& [weight, i] : weighted) order.push_back(i);
    try_order(order);
  }
  // Items of no bytes lie at the base: any address would do.
  for (size_t i = 0; i < intervals.size(); ++i)
    if (intervals[i].bytes == 0) best.offsets[i] = space.base;
  return best;
}

}  // namespace lathe
