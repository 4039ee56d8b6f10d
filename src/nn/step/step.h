// Steps: training, evaluation and prediction steps as graphs: the model, its loss, `grad`, the optimizer. All else that
// is done to a training step is a pass (passes/techniques).
//
// Inputs of kind batch: "x", "y" (not for prediction), "index" (global sample indices). The task says what y is.
// Inputs of kind step:  "lr", "key" = {seed, step}, "loss_weight" = 1 / number of loss terms of the optimizer step.
// Metrics: train: "loss"; evaluate: "loss_sum", and by task
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
};

// `x` is the type of one sample: u8 [H, W, C], f32 [H, W, C] (taken as it is), or i32 [T].
// Sets of one graph, named "train", "eval" and "predict".
StepSet train_step(const StepConfig&, const TensorType& x, int64_t batch);
StepSet eval_step(const StepConfig&, const TensorType& x, int64_t batch);     // loss and hits of a batch
StepSet predict_step(const StepConfig&, const TensorType& x, int64_t batch);  // outputs of a batch
bool evaluates_plain_loss(const StepConfig&);  // cross entropy or mean square, whatever is trained by
std::vector<std::string> parameter_names(const StepConfig&, const TensorType& x);  // in the order of the net

}  // namespace lathe
