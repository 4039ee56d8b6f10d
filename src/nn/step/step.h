// Steps: whole training, accumulation, update, evaluation and prediction steps as graphs, optimizer included.
//
// Inputs of kind batch: "x", "y" (not for prediction), "index" (global sample indices). The task says what y is.
// Inputs of kind step:  "lr", "key" = {seed, step}, "loss_scale" = 1 / number of loss terms of the optimizer step;
//   "average" = share of the new weights in their average; "lookahead" = part of the way that slow weights go.
// Metrics: train: "loss", "grad_norm", "accepted", "gradient_scale" (that the step used, where it is state);
// evaluate: "loss_sum", and by task
//   classify, segment: "correct"; segment also "meet_N", "join_N" of each class: pixels of both, or of either, of
//     prediction and truth (up to kMostMaskClasses)
//   regress: "square_sum" of the errors, "distance_sum", "target_sum", "target_square_sum"
//   restore: "square_sum", "input_error_sum"
//   embed: "correct": samples whose nearest other one of the batch has their class
// Results: "logits"; regress: the values; restore: the image, in [0, 1] but for errors.
#pragma once

#include <vector>

#include "nn/families/model.h"
#include "nn/optimizer.h"

namespace lathe {

enum class Task {  // What a net learns.
  classify,        // y: i32 [B], or [B, T] with a label per token; cross entropy
  regress,         // y: f32 [B, classes]; mean square
  segment,         // y: u8 [B, H, W], a class per pixel; cross entropy
  restore,         // y: u8 [B, H, W, C], the image that x should be; the net's output is added to x; mean square
  embed,           // y: i32 [B]; outputs are places, where samples of one class should lie close together
};
// What training makes small: train.loss of a recipe and the keys of that loss.
struct LossSpec {
  // A row of nn/step/loss.h; "auto": that of the family, where it brings one, else the plain one of the task.
  std::string name = "auto";
  ParamSet params;                                                    // of that loss
  LossSpec() : LossSpec("auto") {}                                    // with its defaults
  explicit LossSpec(std::string_view loss, const NamedValues& = {});  // UserError: no such loss or parameter
  friend bool operator==(const LossSpec&, const LossSpec&) = default;
};
inline constexpr int64_t kMostMaskClasses = 32;  // whose meet and join are counted

struct StepConfig {            // What the steps of a run are made from.
  Task task = Task::classify;  // what y is and which loss
  ModelConfig model;           // the network
  OptimizerConfig optimizer;   // and its updates
  LossSpec loss;               // of training
  double clip_norm = 0;
  double clip_value = 0;
  // false ("after_all"): one finite flag over all gradients gates every update. true ("at_gradient"): each tensor is
  // updated as soon as its gradient is known, gated by the loss and its own flag, so gradients do not live together.
  bool at_gradient = false;
  // Gradients are those of the loss times this, divided by it again in f32: keeps small ones within f16. A power of two
  // changes no bit of an f32 or bf16 gradient.
  double gradient_scale = 1;
  // > 0: that is only where the scale begins. It is state: halved (down to 1) by a step that is refused, doubled (up to
  // kLargestScale) after so many steps in a row that were not.
  int64_t scale_growth = 0;
  // Evaluation and prediction read an average of the weights and buffers, which training keeps beside them.
  bool average = false;
  // The gradient is taken where a step of this length uphill leads to (sharpness-aware minimisation, Foret et al.,
  // 2021); 0: where the weights are.
  double sam = 0;
};

constexpr double kLargestScale = 1 << 24;  // the loss scale grows no further

struct Step {                    // A step that is not optimised yet.
  Graph graph;                   // see the top of the file
  std::vector<StateSpec> state;  // in the order of the graph's inputs
};

// `x` is the type of one sample: u8 [H, W, C], f32 [H, W, C] (taken as it is), or i32 [T].
Step train_step(const StepConfig&, const TensorType& x, int64_t batch);
Step accumulate_step(const StepConfig&, const TensorType& x, int64_t batch);  // adds to the gradient accumulators
Step update_step(const StepConfig&, const TensorType& x);                     // applies and clears them
Step eval_step(const StepConfig&, const TensorType& x, int64_t batch);        // loss and hits of a batch
bool evaluates_plain_loss(const StepConfig&);  // cross entropy or mean square, whatever is trained by
std::vector<std::string> parameter_names(const StepConfig&, const TensorType& x);  // in the order of the net
Step predict_step(const StepConfig&, const TensorType& x, int64_t batch);          // outputs of a batch

}  // namespace lathe
