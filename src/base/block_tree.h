// BlockTree: the order in which what blocks of a batch give is added up. Of the blocks [first, last) it is the sum of
// both halves, the first one not smaller; it does not depend on how many ranks have the blocks (base/part.h).
#pragma once

#include <vector>

#include "base/part.h"

namespace lathe {

// Where [first, last) is halved.
inline int64_t middle_of(const Part& p) { return p.first + (p.size() + 1) / 2; }

// The largest halves of halves of `all` that lie within `own`, in order: what a rank can add up alone.
inline void cut_tree(const Part& all, const Part& own, std::vector<Part>& out) {
  if (all.size() == 0 || all.first >= own.last || own.first >= all.last) return;
  if (all.first >= own.first && all.last <= own.last) {
    out.push_back(all);
    return;
  }
  cut_tree({all.first, middle_of(all)}, own, out);
  cut_tree({middle_of(all), all.last}, own, out);
}

// f(i) for the leaves `cut`, which are halves of halves of `all` in order, and add(a, b) for the sums above them.
template <class F, class Add>
auto fold_tree(const Part& all, const std::vector<Part>& cut, F&& f, Add&& add) -> decltype(f(size_t{0})) {
  const auto at = std::ranges::find_if(cut, [&](const Part& p) { return p.first == all.first && p.last == all.last; });
  if (at != cut.end()) return f(static_cast<size_t>(at - cut.begin()));
  const int64_t middle = middle_of(all);
  auto left = fold_tree({all.first, middle}, cut, f, add);
  auto right = fold_tree({middle, all.last}, cut, f, add);
  return add(std::move(left), std::move(right));
}

struct BlockTree {  // The sums that ranks bring.
  BlockTree(int64_t number, int64_t ranks) : blocks{0, number} {
    for (int64_t r = 0; r < ranks; ++r) {
      places.push_back(cut.size());
      cut_tree(blocks, part_of(number, ranks, r), cut);
    }
    places.push_back(cut.size());
  }
  size_t sums_of(int64_t rank) const {  // how many a rank brings
    return places[static_cast<size_t>(rank) + 1] - places[static_cast<size_t>(rank)];
  }

  Part blocks;                 // all
  std::vector<Part> cut;       // the sums of all ranks, in order
  std::vector<size_t> places;  // of the first sum of each rank, and the end
};

}  // namespace lathe
