// recompute: which nodes run again so that scratch memory gets smaller. Greedy at the peak: of the values that lie idle
// across it, the one is dropped and computed again whose time per byte taken off the peak (and off what is nearly as
// high) is least; what it needs and is gone by then is computed again with it. The steps do not depend on a budget, so
// that each state is the start of the next: the whole curve of memory against time is one walk.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/target.h"
#include "plan/rerun.h"

namespace lathe {

class Recompute {
 public:
  Recompute(const LiveModel&, const Target&);

  int64_t peak() const { return profile_.peak; }  // of live scratch bytes, after the steps taken
  bool lower();                                   // one step down; false: no step that was tried helps

  // What the first steps after which at most so many bytes are live come to, without what is not needed for that.
  // None: that is too little.
  std::optional<Reruns> fit(int64_t bytes);

 private:
  struct Edit {
    int32_t node, add, remove;  // times; remove is -1: none
  };
  struct Candidate {
    double price = 0;  // seconds per byte and run above the mark
    std::vector<Edit> edits;
  };
  void find_hot();
  bool search();
  std::vector<Candidate> candidates() const;
  std::optional<Candidate> evaluate(int32_t result, int32_t from, int32_t at, bool move) const;
  double above_mark(int32_t from, int32_t to, int64_t bytes) const;
  int32_t group_start(int32_t at) const;
  bool is_live_at(int32_t result, int32_t at) const;
  bool apply(const std::vector<Edit>&);
  void revert(const std::vector<Edit>&);
  bool improves(const LiveProfile&) const;

  const LiveModel& model_;
  std::vector<double> seconds_;
  Reruns reruns_;
  // All steps found so far; the first `taken_` are taken.
  struct Step {
    std::vector<Edit> edits;
    int64_t peak_before = 0;
  };
  std::vector<Step> steps_;
  size_t taken_ = 0;
  bool at_end_ = false;  // there are no more
  LiveProfile profile_;
  int64_t mark_ = 0;          // bytes; runs above it are hot
  std::vector<int32_t> hot_;  // runs
  double hot_area_ = 0;
};

// A lower bound for the time of a launch: at the target's peak of arithmetic or of memory, whichever is slower. Where
// the target knows no peaks, those of a small processor stand in, for their proportion.
double launch_seconds(const Cost&, const Target&);

}  // namespace lathe
