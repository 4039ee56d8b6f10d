// train: the loop. Steps, evaluation, checkpoints, signals, non-finite values, progress.
//
// A run directory holds recipe.toml (resolved), data.json (what predictions need of the data), metrics.jsonl
// (deterministic: no times), checkpoints/, best/ (if wanted), summary.json, report.html, TensorBoard events.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/world.h"
#include "compile/compile.h"
#include "loop/eval_result.h"
#include "loop/rank_rows.h"
#include "loop/step_inputs.h"
#include "rundir/progress.h"

namespace lathe {

struct TrainOptions {                // How train() runs.
  std::string out;                   // run directory
  bool new_out = false;              // never one that is there: out-2, out-3, ... if it has to be; see TrainResult::out
  bool resume = false;               // continue from the newest valid checkpoint, if there is one
  bool measure_peak = false;         // at the end, for the percentage of the device's peak
  ProgressSink* progress = nullptr;  // notified of progress; may be null
  // Signals that ask to stop (SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP) end the run with a checkpoint, or with the one
  // that is there where a step would take too long to complete (run/leaving.h), from the end of its first step to that
  // of its last: the handlers of the program are away in that time. Before it there is nothing
  // to keep, and after it everything is kept: signals are the program's own then. False: all signals are left alone.
  bool handle_signals = true;
  CompileOptions compile;  // passes and device
  // Of the ranks that train together, each with a train() of its own and the same recipe, data and options; it outlives
  // the call. The first rank writes the directory and reports. Null: one rank. train_on_ranks() makes them in threads.
  comm::Group* group = nullptr;
  comm::Control* control = nullptr;  // of ranks that are processes: who fails is named by it. Null: there is none
  std::vector<comm::Item> alike;     // what the program wants to be the same on such ranks, beside recipe and data
  // Data of the program (data/arrays.h) instead of the recipe's, whose data.source, path, shape, classes and numbers of
  // samples they replace. Labels and numbers to predict are checked as they are read. Both below may be null, and
  // without `train_data` they are a UserError.
  std::shared_ptr<const data::Source> train_data = nullptr;
  std::shared_ptr<const data::Source> validation_data = nullptr;  // else data.validation of `train_data` is held out
  std::shared_ptr<const data::Source> eval_data = nullptr;        // the test set
  // Called with the run directory, which is there and locked, and the step that the run is at, before the first one.
  std::function<void(const std::string& out, int64_t step)> on_start = nullptr;
  // Called after each step with its number, counted from 1: for tests and profiles. On ranks that are processes, by
  // each of them.
  std::function<void(int64_t step, Executor&)> on_step;
  // Called when a run ends before its recipe says so, by a signal or an error, before train() returns or throws; not
  // when nothing began. The directory then holds what was logged: for a page about it (report/report.h).
  std::function<void(const Compiled&)> on_cut_short = {};
  // Called when a run has come to its end or was stopped by a signal, before train() returns. On ranks that are
  // processes, by each of them, while they can still talk to each other.
  std::function<void(const Compiled&)> on_end = {};
};

struct TrainResult {                                    // What train() did.
  bool preempted = false;                               // a signal ended it: `resume` goes on
  bool unchanged = false;                               // resumed at its end: nothing was trained, no file was written
  bool stopped_early = false;                           // train.patience ended it
  int64_t steps = 0;                                    // reached
  int64_t best_step = 0;                                // of the best evaluation on the validation set; 0: none
  int64_t skipped = 0;                                  // steps that were refused: not finite
  double loss = 0;                                      // of the last batch
  double eval_loss = 0, accuracy = 0;                   // on the test set; NaN when it was not evaluated
  std::optional<EvalResult> validation, test;           // the last evaluation of each set
  double samples_per_second = 0;                        // in training steps
  double seconds = 0;                                   // in training steps of this part: since the start or --resume
  double total_seconds = 0;                             // of all parts that led to this state, from step `timed_from`
  int64_t timed_from = 0;                               // > 0: a checkpoint of this step did not say how long it took
  double flops_per_second = 0;                          // that the kernels of this rank compute
  double peak_flops = 0;                                // measured on this device
  RunMemory memory;                                     // as planned
  int64_t allocated = 0;                                // equals memory.total(), in bytes
  int64_t resident_bytes = 0;                           // peak of the process
  int64_t outside_estimated = 0, outside_measured = 0;  // beside what Lathe requests (compile/outside.h)
  double wait_seconds = 0;                              // waiting for data
  double communication_seconds = 0;                     // of this rank in collectives, waiting for others included
  double exposed_seconds = 0;                           // of those, what computation did not hide
  double start_seconds = 0;                             // from the start of the process to the end of the first step
  double start_cpu_seconds = 0;                         // that processors worked in that time
  DeviceCounters in_steps;  // calls in steps after the first; the waits of evaluations and checkpoints are not in it
  int ranks = 1;            // that trained together; rates are those of all, memory is this one's
  std::string out;          // run directory
  std::string device;       // that it ran on
  std::vector<std::string> device_notes;  // what it said of the kernels that were bound (Device::notes)
  std::vector<std::string> warnings;      // classes without samples in a set; steps that a signal lost
  std::vector<RankRow> by_rank;           // of several, on the first one
};

// Evaluations while it trains are on the validation set, and the test set is evaluated once, at the end; without a
// validation set they are on the test set, and nothing is chosen by them: train.patience, checkpoint.best and
// schedule.name = "plateau" are a UserError then. A run that comes to its end, or is stopped by a signal, leaves
// summary.json. With train.epochs = 0 it is the first checkpoint, of step 0, that it leaves.
//
// UserError and DeviceError as they come; DriverError, with the step, when the device is lost in the middle;
// Exit::bad_data when losses or gradients stay non-finite. What a Source or on_step throws comes through as it is.
// Several threads may train at once, each into a run directory of its own.
//
// Several ranks train as one does: what a step computes does not depend on their number, but for the order in which
// numbers are added up. A rank that fails should abort() the group: the others throw a CommError then. A signal to any
// rank ends all after the same step.
TrainResult train(const Recipe&, const TrainOptions&);

// The same on so many ranks that are threads of this process; device.threads are those of each, and 0 divides what
// there is among them. Callbacks, progress and the result are the first rank's. What the first rank that failed threw
// is thrown again, with its number in the message. `options.group` must be null.
TrainResult train_on_ranks(const Recipe&, const TrainOptions& options, int ranks);

// The same as one of the processes that a launcher started. The others are told of what it throws; what they throw is a
// CommError with the line that all ranks have. Before the first step they compare what they were started with.
// Callbacks are the first rank's, but for on_step and on_end, which every process has.
TrainResult train_in(comm::World&, const Recipe&, const TrainOptions&);

}  // namespace lathe
