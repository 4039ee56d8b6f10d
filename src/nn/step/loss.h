// Losses: what training makes small. The table says which targets a loss is for; recipes, their errors and steps read
// it.
#pragma once

#include <span>
#include <string_view>

#include "nn/step/step.h"

namespace lathe {

struct LossRule {
  std::string_view name;        // train.loss
  Loss loss;                    // and its place in a step
  std::span<const Task> tasks;  // that it is for
  bool measures = false;        // evaluation has it too, not the task's plain loss
};
std::span<const LossRule> loss_rules();            // without "auto"
const LossRule* find_loss(std::string_view name);  // or null
bool learns_embedding(std::string_view loss);      // the outputs are places, where equal classes lie close

// Of each term: of a row of y, or of each number of it. y [rows, columns] and target as the task says, classes as i32
// [rows]. UserError where they do not fit the loss.
Value losses_of(const StepConfig&, Value y, Value target);
// Embeddings [rows, columns]: 1 where the nearest other row has the same class.
Value nearest_hits(Value y, Value target);

}  // namespace lathe
