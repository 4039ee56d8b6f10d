// budget: drafts that need more memory than there is are made to fit by running nodes again (plan/recompute.h).
#pragma once

#include <list>
#include <optional>
#include <vector>

#include "plan/draft.h"
#include "plan/recompute.h"

namespace lathe {

class BudgetFitter {
 public:
  BudgetFitter(const Drafts&, const Target&);  // both outlive it

  // Drafts whose arena has at most so many bytes; none when that cannot be reached.
  std::optional<Drafts> fit(int64_t bytes);
  // The fewest bytes of arena for which fit() finds drafts, to within half a percent; fit(smallest()) succeeds.
  int64_t smallest();

 private:
  struct Item {
    LiveModel model;
    Recompute recompute;
    int64_t scratch;  // bytes, without reruns
    Item(const Draft&, const std::vector<Choice>&, const Target&, int64_t scratch_bytes);
  };
  std::optional<Drafts> with_live(int64_t bytes);  // at most so many scratch bytes are live in each draft
  int64_t least_live();                            // at the end of all steps
  int64_t lowest();

  const Drafts& from_;
  const Target& target_;
  std::list<Item> items_;
  int64_t fixed_ = 0;    // bytes of the arena that are not scratch
  int64_t lowest_ = -1;  // -1: not known yet
};

}  // namespace lathe
