// One pass over evaluation data with the eval Programs.
#pragma once

#include <memory>
#include <optional>

#include "data/loader.h"
#include "train/compile.h"
#include "train/run_dir.h"
#include "train/signals.h"
#include "train/trainer.h"

namespace lathe {

// The slots of an executor that a loader fills, as the loader wants them: first to first + count - 1. Sample indices
// are staged for training only: evaluation Programs do not read them, and their batches may be larger than the room for
// them.
std::vector<data::Slot> loader_slots(const Executor&, int first, int count, bool indices);

// Into metrics.jsonl ("eval_loss", "eval_accuracy", ...), and as text for people. Neither allocates.
void write_evaluation(MetricsLog&, int64_t step, const EvalResult&);
void append_evaluation(fmt::memory_buffer& text, const EvalResult&);

class Evaluation {
 public:
  // Uses the executor's last two slots; allocates nothing in run().
  Evaluation(const Compiled&, Executor&, const data::Source&);
  EvalResult run();
  std::optional<EvalResult> run(const StopSignals* stop);  // none: a signal came, and the pass was left (null: never)

 private:
  Executor& executor_;
  int first_slot_;
  Task task_;
  int64_t batch_, terms_per_sample_;
  bool entropy_of_tokens_;
  double unit_;  // of rmse and mae
  size_t whole_, tail_;
  struct Overlap {
    std::string meet_name, join_name;
    double meet = 0, join = 0;
  };
  std::vector<Overlap> overlaps_;  // of the classes of masks
  data::Loader loader_;
};

}  // namespace lathe
