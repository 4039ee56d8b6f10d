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

#include "train/compile.h"
#include "train/step_inputs.h"

namespace lathe {

struct TrainOptions {         // How train() runs.
  std::string out;            // run directory
  bool new_out = false;       // never one that is there: out-2, out-3, ... if it has to be; TrainResult::out tells
  bool resume = false;        // go on from the newest valid checkpoint, if there is one
  bool quiet = false;         // no progress on the standard output
  bool measure_peak = false;  // at the end, for the percentage of the device's peak
  // Signals that ask to stop (SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP) end the run with a checkpoint, from the end of
  // its first step to that of its last: the handlers of the program are away in that time. Before it there is nothing
  // to keep, and after it everything is kept: signals are the program's own then. False: all signals are left alone.
  bool handle_signals = true;
  CompileOptions compile;  // passes and device
  // Data of one's own (data/arrays.h) instead of the recipe's, whose data.source, path, shape, classes and numbers of
  // samples they replace. Without `eval_data`, data.validation of `train_data` is held out, or nothing is evaluated;
  // `eval_data` alone is a UserError. Labels and numbers to predict are checked as they are read.
  std::shared_ptr<const data::Source> train_data = nullptr, eval_data = nullptr;  // eval_data: may be null
  // Called with the run directory, which is there and locked, before the first step.
  std::function<void(const std::string& out)> on_start = nullptr;
  // Called after each step with its number, counted from 1: for tests and profiles.
  std::function<void(int64_t step, Executor&)> on_step;
  // Called when a run ends before its recipe says so, by a signal or an error, before train() returns or throws; not
  // when nothing began. The directory then holds what was logged: for a page about it (train/report.h).
  std::function<void(const Compiled&)> on_cut_short = {};
};

// What is known of the predictions for evaluation data. Which numbers there are depends on data.target.
struct EvalResult {                  // What evaluation found.
  double loss = 0;                   // mean over samples or tokens
  double accuracy = 0;               // of classes, tokens or pixels; NaN where there are none
  std::optional<double> perplexity;  // of tokens, where the loss is their entropy: e to it
  std::optional<double> iou;         // mask: mean over the classes of what prediction and truth share, of both together
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
std::string metric_text(std::string_view name, double value);  // "93.20 %", "31.44 dB", "0.9812"

struct TrainResult {                                    // What train() did.
  bool preempted = false;                               // a signal ended it; a checkpoint was written
  bool unchanged = false;                               // resumed at its end: nothing was trained, no file was written
  bool stopped_early = false;                           // train.patience ended it
  int64_t steps = 0;                                    // reached
  int64_t best_step = 0;                                // of the best evaluation; 0: there was none
  int64_t skipped = 0;                                  // steps that were refused: not finite
  double loss = 0;                                      // of the last batch
  double eval_loss = 0, accuracy = 0;                   // NaN when nothing was evaluated
  std::optional<EvalResult> evaluation;                 // the last
  double samples_per_second = 0;                        // in training steps
  double seconds = 0;                                   // in training steps of this part: since the start or --resume
  double total_seconds = 0;                             // of all parts that led to this state, from step `timed_from`
  int64_t timed_from = 0;                               // > 0: a checkpoint of this step did not say how long it took
  double flops_per_second = 0;                          // that the kernels compute
  double peak_flops = 0;                                // measured on this device
  RunMemory memory;                                     // as planned
  int64_t allocated = 0;                                // equals memory.total(), in bytes
  int64_t resident_bytes = 0;                           // peak of the process
  int64_t outside_estimated = 0, outside_measured = 0;  // beside what Lathe requests (train/outside.h)
  double wait_seconds = 0;                              // waiting for data
  double start_seconds = 0;                             // from the start of the process to the end of the first step
  double start_cpu_seconds = 0;                         // that processors worked in that time
  DeviceCounters in_steps;  // calls in steps after the first; the waits of evaluations and checkpoints are not in it
  std::string out;          // run directory
  std::string device;       // that it ran on
  std::vector<std::string> device_notes;  // what it said of the kernels that were bound (Device::notes)
};

// UserError and DeviceError as they come; DriverError, with the step, when the device is lost in the middle;
// Exit::bad_data when losses or gradients stay non-finite. What a Source or on_step throws comes through as it is.
// Several threads may train at once, each into a run directory of its own.
TrainResult train(const Recipe&, const TrainOptions&);

inline constexpr const char* kCheckpointFolder = "checkpoints";  // within a run directory
inline constexpr const char* kBestFolder = "best";               // within a run directory

enum class Which {  // Which checkpoint of a run.
  newest,           // the last valid one
  best,             // the one with the best evaluation (checkpoint.best)
};

// A checkpoint of a run on its evaluation data.
EvalResult evaluate(const std::string& run, const std::vector<std::string>& sets, Which = Which::newest);

struct Prediction {                   // What the net says of one input.
  std::string input;                  // its name
  std::vector<double> probabilities;  // class: of each; token models: of the first new token
  int64_t label = 0;                  // the most likely class
  std::string text;                   // token models: the continuation
  std::vector<double> values = {};    // value: in the data's units
  std::string name = {};              // of the class, where the data have one
  std::string picture = {};           // mask: the class of each pixel as grey, 255 * class / (classes - 1);
                                      // image: without noise; the bytes of a PNG file
  std::vector<double> shares = {};    // mask: of the pixels that each class has
};
// Inputs: files as read_samples (train/dataset.h) takes them, each sample of which gets a prediction; "test:N" or
// "test:A-B" of the recipe's evaluation data. Tokens: text files, continued by `tokens` bytes (default 64), always the
// most likely one; an error for others.
std::vector<Prediction> predict(const std::string& run, const std::vector<std::string>& inputs,
                                const std::vector<std::string>& sets, std::optional<int64_t> tokens = {},
                                Which = Which::newest);

// The recipe stored in a run directory, with overrides. UserError where they would change what the net's outputs mean,
// such as data.label.
Recipe load_run_recipe(const std::string& run, const std::vector<std::string>& sets);

// An executor with the weights of the run's checkpoint; notes go to stderr.
std::unique_ptr<Executor> open_run(const std::string& run, const Compiled&, Which = Which::newest);

}  // namespace lathe
