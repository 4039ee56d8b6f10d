// predict: what the net of a run says of inputs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rundir/open_run.h"

namespace lathe {

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
// Inputs: files as read_samples (workload/dataset.h) takes them, each sample of which gets a prediction; "test:N" or
// "test:A-B" of the recipe's test set, "validation:N" or "validation:A-B" of its validation set. Tokens: text files,
// continued by `tokens` bytes (default 64), always the most likely one; an error for others.
std::vector<Prediction> predict(const std::string& run, const std::vector<std::string>& inputs,
                                const std::vector<std::string>& sets, std::optional<int64_t> tokens = {},
                                Which = Which::newest);

}  // namespace lathe
