// pack: lifetimes -> offsets. Intervals that overlap in time get disjoint bytes; the end is kept close to the lower
// bound (the largest sum of bytes live at one time). Deterministic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lathe {

// Live at the times first .. last, both included.
struct Interval {
  int64_t bytes = 0;
  int32_t first = 0, last = 0;
};

// Where intervals may lie: at multiples of `alignment`, from `base` on, never across a multiple of `chunk` (the size of
// a segment of the arena).
struct PackSpace {
  int64_t alignment = 64;
  int64_t base = 0;
  int64_t chunk = int64_t{1} << 62;  // a multiple of alignment; no interval is larger
};

struct Packing {
  std::vector<int64_t> offsets;
  int64_t end = 0;          // base where there is nothing; a multiple of alignment
  int64_t lower_bound = 0;  // no packing can end before base + lower_bound; sizes count rounded up to the alignment
};

// Takes the best of several greedy orders; stops early at the lower bound.
Packing pack(std::span<const Interval>, const PackSpace&);

// The time at which most bytes are live (the first such), sizes rounded up to the alignment.
struct LivePeak {
  int32_t time = 0;
  int64_t bytes = 0;
};
LivePeak find_peak(std::span<const Interval>, int64_t alignment);

}  // namespace lathe
