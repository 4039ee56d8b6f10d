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

}  // namespace lathe
