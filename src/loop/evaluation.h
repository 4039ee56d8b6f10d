// One pass over the validation or the test set with the eval Programs.
#pragma once

#include <memory>
#include <optional>

#include "compile/compile.h"
#include "data/loader.h"
#include "loop/signals.h"
#include "loop/step_queue.h"
#include "rundir/open_run.h"
#include "rundir/run_dir.h"

namespace lathe {

// What is known of the predictions for a set. Which numbers there are depends on data.target.
struct EvalResult {                       // What evaluation found.
  data::Split split = data::Split::test;  // of which set
  double loss = 0;                        // mean over samples or tokens
  double accuracy = 0;                    // of classes, tokens or pixels; NaN where there are none
  std::optional<double> perplexity;       // of tokens, where the loss is their entropy: e to it
  std::optional<double> iou;  // mask: mean over the classes of what prediction and truth share, of both together
  // value: root of the mean square of the error, in the data's units; with several numbers per sample, which may be of
  // different units, over all of them, each in deviations of its column
  std::optional<double> rmse;
  std::optional<double> mae;  // value: mean size of the error, in the same units
  // value: part of the variance that is explained; the mean as a guess has 0. Of several numbers per sample: of the
  // variance of all, to which each column standardised by itself adds alike
  std::optional<double> r2;
  std::optional<double> psnr;        // image: of the output against the image without noise, in dB, over all pixels
  std::optional<double> input_psnr;  // the same of the input
  int64_t samples = 0;               // seen
  double seconds = 0;                // it took

  // f(name, value) for each that there is, but the loss.
  template <class F>
  void each(F&& f) const {
    if (!rmse && !psnr) f("accuracy", accuracy);
    const std::pair<const char*, const std::optional<double>&> others[] = {
        {"perplexity", perplexity}, {"iou", iou}, {"rmse", rmse}, {"mae", mae}, {"r2", r2}, {"psnr", psnr},
        {"input_psnr", input_psnr}};
    for (const auto& [name, value] : others)
      if (value) f(name, *value);
  }
};

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
  EvalResult run();
  std::optional<EvalResult> run(const StopSignals* stop);  // none: a signal came, and the pass was left (null: never)

 private:
  struct Sums {
    double loss = 0, correct = 0, errors = 0, distance = 0, targets = 0, squares = 0, input_errors = 0;
  };
  void add_done();  // the metrics of the runs that are done, in order
  void drain();     // all runs that were given

  Executor& executor_;
  data::Split split_;
  int slots_, first_slot_;
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
  Sums sums_;
  data::Loader loader_;
  StepQueue queue_;
};

// A checkpoint of a run on one of its sets: as asked, else the test set, else (where there is none) the validation set.
// UserError (missing_input): there is no such set; (bad_recipe): `sets` would hold other samples out than training did.
EvalResult evaluate(const std::string& run, const std::vector<std::string>& sets, Which = Which::newest,
                    std::optional<data::Split> = {});

// The set of that run. UserError as evaluate().
const data::Source& set_of_run(const std::string& run, const Recipe&, const Dataset&, data::Split);

}  // namespace lathe
