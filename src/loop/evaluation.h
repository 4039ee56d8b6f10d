// One pass over the validation or the test set with the eval Programs.
#pragma once

#include <memory>
#include <optional>

#include "compile/compile.h"
#include "data/loader.h"
#include "loop/eval_result.h"
#include "loop/step_queue.h"
#include "rundir/run_dir.h"

namespace lathe {

// The slots of an executor that a loader fills, as the loader wants them: first to first + count - 1. Sample indices
// are staged for training only: evaluation Programs do not read them, and their batches may be larger than the room for
// them.
std::vector<data::Slot> loader_slots(const Executor&, int first, int count, bool indices);

// Into metrics.jsonl ("eval_loss", "eval_accuracy", ... of the test set, "validation_loss", ... of the other), and as
// text for people. Neither allocates.
void write_evaluation(MetricsLog&, int64_t step, const EvalResult&);
void append_evaluation(fmt::memory_buffer& text, const EvalResult&);

class Evaluation {
 public:
  // Uses the executor's last two slots, or all where nothing is trained. No run of others may be under way in run(). It
  // gives batches to the device ahead, without a call that blocks, and allocates nothing.
  Evaluation(const Compiled&, Executor&, const data::Source&, data::Split);
  // None: a run was left (run/leaving.h), and the pass with it; or, on several ranks, one of them was asked to stop,
  // and all end after the same batch. `stop`: whether this one is asked to; null: nobody does.
  std::optional<EvalResult> run(const StopFlag* stop = nullptr);

 private:
  struct Sums {
    double loss = 0, correct = 0, errors = 0, distance = 0, targets = 0, squares = 0, input_errors = 0;
  };
  void add_done();  // the metrics of the runs that are done, in order
  void drain();     // all runs that were submitted

  Executor& executor_;
  data::Split split_;
  int slots_, first_slot_;
  Task task_;
  int64_t batch_, terms_per_sample_;
  bool entropy_of_tokens_;
  double unit_;  // of rmse and mae
  size_t whole_, tail_;
  int ahead_;
  bool votes_;                     // ranks may ask all to stop
  std::optional<int64_t> ending_;  // the batch before which all do
  struct Overlap {
    std::string meet_name, join_name;
    double meet = 0, join = 0;
  };
  std::vector<Overlap> overlaps_;  // of the classes of masks
  Sums sums_;
  data::Loader loader_;
  StepQueue queue_;
};

// The set of that run. UserError as evaluate().
const data::Source& set_of_run(const std::string& run, const Recipe&, const Dataset&, data::Split);

}  // namespace lathe
