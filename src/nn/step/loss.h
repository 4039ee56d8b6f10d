// Losses: what training makes small. A loss is a struct of static functions and a row of the table in loss.cpp: which
// targets it is for, its keys, and how it is built. Recipes, their errors and steps read the table.
#pragma once

#include <span>
#include <string_view>

#include "nn/step/step.h"

namespace lathe {

struct LossInfo {               // What is fixed about a loss.
  std::string_view name;        // train.loss
  std::string_view doc;         // one line
  std::span<const Task> tasks;  // that it is for
  bool plain = false;           // "auto" means it, and evaluation measures it, for its tasks
  bool measures = false;        // evaluation has it too, not the task's plain loss
  bool each_class = false;      // classes are questions of their own: probabilities need not add up to 1
};

struct LossRule {
  LossInfo info;
  const Schema& (*schema)() = schema_of<NoFields>;  // of its parameters: recipe keys train.*
  // Of each term: of a row of y, or of each number of it. y [rows, columns] and labels as the task says, classes as i32
  // [rows]. UserError where they do not fit the loss.
  Value (*build)(const ParamSet&, Value y, Value labels) = nullptr;
  int64_t (*outputs)(const ParamSet&) = nullptr;  // numbers of an embedding; null: as many as the data have classes

  std::string_view name() const { return info.name; }
};

std::span<const LossRule> loss_rules();            // without "auto"
const LossRule& auto_loss();                       // "auto": its keys are those of the plain losses; no build function
const LossRule* find_loss(std::string_view name);  // "auto" included; or null
const LossRule& plain_loss(Task);                  // of "auto", where the family has no loss of its own
const LossRule& loss_of(const LossSpec&, Task);    // "auto" resolved
bool is_auto(const LossSpec&);                     // the family's own loss is wanted, if it has one
bool learns_embedding(const LossSpec&);            // the outputs are places, where equal classes lie close

Value losses_of(const StepConfig&, Value y, Value labels);  // of the configuration's loss: see LossRule::build
LossSpec evaluation_loss(const StepConfig&);                // what evaluation measures
// Embeddings [rows, columns]: 1 where the nearest other row has the same class.
Value nearest_hits(Value y, Value labels);

}  // namespace lathe
