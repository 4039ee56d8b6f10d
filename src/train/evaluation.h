// One pass over evaluation data with the eval Programs.
#pragma once

#include <memory>

#include "data/loader.h"
#include "train/compile.h"
#include "train/trainer.h"

namespace lathe {

// The slots of an executor that a loader fills, as the loader wants them: first to first + count - 1. Sample indices
// are staged for training only: evaluation Programs do not read them, and their batches may be larger than the room for
// them.
std::vector<data::Slot> loader_slots(const Executor&, int first, int count, bool indices);

class Evaluation {
 public:
  // Uses the executor's last two slots; allocates nothing in run().
  Evaluation(const Compiled&, Executor&, const data::Source&);
  EvalResult run();

 private:
  Executor& executor_;
  int first_slot_;
  int64_t batch_, terms_per_sample_;
  size_t whole_, tail_;
  data::Loader loader_;
};

}  // namespace lathe
