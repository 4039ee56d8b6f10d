// compile: recipe -> graphs -> passes -> plan. Needs no device; the result is everything a run will do and allocate.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compile/device_spec.h"
#include "data/loader.h"
#include "nn/step/step.h"
#include "passes/pass.h"
#include "plan/program.h"
#include "session/session.h"
#include "workload/dataset.h"

namespace lathe {

// Which optimizer steps there are and what each consists of: pure functions of the recipe and the sample count.
struct TrainingSteps {
  int64_t batch = 0;            // samples per (micro-)batch
  int64_t accumulate = 1;       // micro-batches per step
  int64_t samples = 0;          // per epoch
  int64_t batches = 0;          // per epoch, the tail included
  int64_t steps_per_epoch = 0;  // updates
  int64_t total_steps = 0;      // of the run

  int64_t epoch_of(int64_t step) const { return step / steps_per_epoch; }                  // counted from 0
  int64_t first_batch(int64_t step) const { return step % steps_per_epoch * accumulate; }  // within the epoch
  int64_t batches_in(int64_t step) const;                                                  // micro-batches of this step
  int64_t samples_in(int64_t step) const;                                                  // of this step
};

TrainingSteps training_steps(const Recipe&, int64_t samples);  // UserError where a batch is larger than the data

// Runs that a device of its own may have in its queue while training: enough that it never waits for the host, few
// enough that a signal or a bad step is noticed soon.
inline constexpr int kRunsAhead = 8;

struct Compiled {             // A recipe, planned.
  Recipe recipe;              // "auto" is resolved: the device that was chosen, the buckets of several ranks
  DataSpec data;              // that it was planned for
  StepConfig config;          // of the steps' graphs
  TrainingSteps steps;        // of training
  StateTable state;           // of all Programs
  ProgramSet set;             // train, train_tail, eval, ...
  Target target;              // that it was planned for
  Mesh mesh;                  // the rank whose Programs these are
  ExecutorOptions executor;   // slots and snapshots
  data::LoaderConfig loader;  // of training
  int64_t eval_batch = 0;     // samples of evaluation's Program; fewer than the recipe's where a budget asks for it
  std::vector<PassReport> passes;  // what they did to all graphs
  double seconds = 0;              // spent in building, passes and plan; starting a driver is not counted

  int64_t parameters() const;                   // numbers that the model has
  RunMemory memory() const;                     // all that a run requests: the executor, the loader and the data set
  size_t program(std::string_view name) const;  // index; InternalError when there is none
  // Whether there is a Program of that name.
  bool has(std::string_view name) const { return set.find(name) != nullptr; }
};

struct CompileOptions {            // What compile makes.
  PipelineOptions passes;          // left out, added, watched
  bool train = true;               // the Programs of training
  bool eval = true;                // the Programs of evaluation
  int64_t predict = 0;             // batch of the prediction Program; 0: none
  std::optional<DeviceSpec> spec;  // plan for this card instead of the recipe's device
  int64_t device_memory = 0;       // plan as if the device had so many bytes; 0: what it has
  bool recompute = true;           // where memory.budget asks for it
  int64_t free_memory = 0;         // bytes that others have left of it: more is refused; 0: not known
  Mesh mesh = {};                  // the ranks that steps are divided among, and the one that is planned for
  std::optional<Link> link = {};   // between them, the same on all; none: the target's
  int64_t bucket = 0;              // bytes of buckets where the recipe says "auto"; 0: by the link
};

data::LoaderConfig loader_config(const Recipe&);         // of training
StepConfig step_config(const Recipe&, const DataSpec&);  // what the graphs are built from
// What passes know: their options are the recipe's.
PassContext pass_context(const Recipe&, const Target&, const Mesh& = {});
// The graphs as nn builds them, before all passes: "train", "train_tail", "eval", "eval_tail", "predict", as far as the
// recipe and the options want them.
StepSet build_steps(const Recipe&, const DataSpec&, const CompileOptions&);
int64_t eval_batch_of(const Recipe&, const DataSpec&);  // samples of evaluation's Program, as the recipe wants it
// The Program for what is left of a set after whole batches of evaluation: "eval_tail" of the test set,
// "validation_tail" of the validation set unless both leave as many samples.
const char* eval_tail_of(const DataSpec&, data::Split, int64_t batch);
// DeviceError when it does not fit, naming the largest batch that does.
Compiled compile(const Recipe&, const DataSpec&, const CompileOptions& = {});
// What was compiled, on its device, which is opened unless it is given (one rank); state has no values yet.
// DeviceError.
std::unique_ptr<Session> open_session(const Compiled&, std::unique_ptr<Device> = nullptr);

}  // namespace lathe
