// Parts: items in a row, divided among ranks. Parts differ by one item at most, the larger ones first.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lathe {

struct Part {                                    // What one rank has.
  int64_t first = 0, last = 0;                   // the first item, and the one behind the last
  int64_t size() const { return last - first; }  // items
};

inline Part part_of(int64_t items, int64_t ranks, int64_t rank) {  // of rank `rank`, from 0
  const int64_t each = items / ranks, more = items % ranks;
  const auto first = [&](int64_t r) { return each * r + std::min(r, more); };
  return {first(rank), first(rank + 1)};
}

// Items in blocks, which are divided among ranks whole: what a rank computes of a block does not depend on how many
// ranks there are. No blocks: items are divided.
inline Part part_of(int64_t items, int64_t blocks, int64_t ranks, int64_t rank) {
  if (blocks == 0) return part_of(items, ranks, rank);
  const Part own = part_of(blocks, ranks, rank);
  const auto first = [&](int64_t b) { return part_of(items, blocks, std::min(b, blocks - 1)).first; };
  return {first(own.first), own.last == blocks ? items : first(own.last)};
}

}  // namespace lathe
