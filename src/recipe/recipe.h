// Recipe: everything that a training run is told, as plain data. A recipe comes from TOML (a file, or text built into
// the program) and --set overrides; it is checked completely before anything is allocated. Its keys are those of one
// table (recipe_keys.cpp), of the options of passes, and of the chosen data source, model family and loss; parsing,
// checks, printing and the reference are derived from them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/schema.h"
#include "base/shape.h"
#include "data/augment.h"
#include "data/source.h"
#include "nn/schedule.h"
#include "nn/step/step.h"

namespace lathe {

// Member names are the keys of the file.
struct DeviceRecipe {
  std::string name = "cpu";
  int64_t threads = 0;
  friend bool operator==(const DeviceRecipe&, const DeviceRecipe&) = default;
};

struct NormalizeRecipe {
  Doubles mean{0.0};
  Doubles std{1.0};
  friend bool operator==(const NormalizeRecipe&, const NormalizeRecipe&) = default;
};

struct SourceSpec {                              // Where samples come from.
  std::string name = "fashion_mnist";            // a row of recipe/sources/source.h
  ParamSet params;                               // of that source: keys of [data] that others need not have
  SourceSpec() : SourceSpec("fashion_mnist") {}  // with its defaults
  explicit SourceSpec(std::string_view source, const NamedValues& = {});  // UserError: no such source or parameter
  friend bool operator==(const SourceSpec&, const SourceSpec&) = default;
};

struct DataRecipe {
  SourceSpec source;  // data.source, and the keys of that source
  std::string path;
  std::string target = "class";
  double noise = 25;
  int64_t classes = 10;
  int64_t train_samples = 0;
  int64_t test_samples = 0;
  double validation = 0;
  int64_t threads = 1;
  int64_t prefetch = 3;
  data::AugmentConfig augment;  // [data.augment]
  NormalizeRecipe normalize;    // [data.normalize]
  friend bool operator==(const DataRecipe&, const DataRecipe&) = default;
};

struct TrainRecipe {
  int64_t epochs = 10;
  int64_t steps = 0;
  int64_t batch_size = 128;
  LossSpec loss;  // train.loss, and the keys of that loss
  int64_t log_every = 50;
  int64_t eval_every = 1;
  int64_t eval_batch = 0;
  std::string monitor = "loss";
  double min_delta = 0;
  int64_t patience = 0;
  friend bool operator==(const TrainRecipe&, const TrainRecipe&) = default;
};

struct CheckpointRecipe {
  int64_t every_steps = 0;
  int64_t every_epochs = 1;
  int64_t keep_last = 3;
  bool best = false;
  std::string verify = "full";
  std::string on_error = "fail";
  friend bool operator==(const CheckpointRecipe&, const CheckpointRecipe&) = default;
};

struct MemoryRecipe {
  ByteSize budget;
  friend bool operator==(const MemoryRecipe&, const MemoryRecipe&) = default;
};

struct CommRecipe {
  double timeout = 120;
  friend bool operator==(const CommRecipe&, const CommRecipe&) = default;
};

struct ParallelRecipe {  // Beside options of passes.
  int64_t check_replicas = 100;
  friend bool operator==(const ParallelRecipe&, const ParallelRecipe&) = default;
};

// Where a key was written: a position in the file, or a --set argument. Line 0: neither, a default or set in code.
struct RecipeOrigin {
  uint32_t line = 0, column = 0;  // from 1
  bool set = false;               // by --set
};

// Where the keys of a recipe were written, for errors that are found after parsing. No part of the recipe's value.
struct RecipeOrigins {
  std::string file;                                                                    // path, or a name
  std::map<std::string, RecipeOrigin, std::less<>> keys;                               // by path: "train.epochs"
  friend bool operator==(const RecipeOrigins&, const RecipeOrigins&) { return true; }  // always: no part of the value
};

struct Recipe {  // All that a run is told.
  std::string name;
  int64_t seed = 0;
  DeviceRecipe device;  // [device]
  DataRecipe data;      // [data]
  ModelSpec model;      // [model]
  // [optimizer]. What depends on the name is that of its row in nn/optimizers/rules.h where a file does not say
  // otherwise; here it is sgd's.
  OptimizerConfig optimizer{.momentum = 0.9};
  ScheduleConfig schedule;      // [schedule]
  TrainRecipe train;            // [train]
  CheckpointRecipe checkpoint;  // [checkpoint]
  MemoryRecipe memory;          // [memory]
  CommRecipe comm;              // [comm]
  ParallelRecipe parallel;      // [parallel]
  // Options of passes (passes/techniques/table.h), by their structs: passes.get<ClipNormOptions>(). Their keys stand in
  // several sections.
  ParamSets passes;
  RecipeOrigins origins;  // for errors
  friend bool operator==(const Recipe&, const Recipe&) = default;
};

using Sets = std::vector<std::string>;  // "key=value", as after --set

// All errors of the text and the sets at once, one per line: `file:line:col: key: expected X, got Y; hint` or
// `--set key: ...`; UserError with Exit::bad_recipe. An empty name becomes the stem of `file`. A key that can have no
// effect (optimizer.beta1 with sgd) is an error, unless a file has it with its default value; where a --set takes a
// key of the file its effect, the key goes back to its default.
Recipe parse_recipe(std::string_view text, const std::string& file, const Sets& sets = {});

// To look at the recipe of a run alone: a model.family that this program does not have is accepted, with the keys of
// [model] as they are written. Rules that join several keys are not checked of such a recipe.
Recipe parse_foreign_recipe(std::string_view text, const std::string& file);
bool is_foreign(const Recipe& recipe);  // its model.family is one of another program

// A built-in recipe by name, or a file. UserError with Exit::missing_input when there is neither.
Recipe load_recipe(const std::string& name_or_path, const Sets& sets = {});

// The checks of parse_recipe for a recipe that was made or changed in code.
void validate(const Recipe& recipe);

// TOML with every key; parses back to an equal recipe. Keys without effect are written with their defaults.
std::string to_toml(const Recipe& recipe);

struct RecipeDifference {  // A key with two values.
  std::string key, a, b;   // values as TOML; "-": the recipe has no such key
};
// In the order of the key table. A key that one of them does not have, for it chooses something else, is a difference
// unless the other leaves it at its default.
std::vector<RecipeDifference> diff(const Recipe& a, const Recipe& b);
std::string value_text(const Recipe& recipe, std::string_view key);  // as in RecipeDifference

// Hash of what a run computes: the keys that change numbers, and the passes that were left out or added
// (pipeline_changes). Equal hashes promise equal weights.
std::string recipe_hash(const Recipe& recipe, const std::vector<std::string>& pass_changes);
bool changes_numbers(const Recipe& recipe, std::string_view key);  // the same keys
// With another value the outputs of a trained net would be read as what they are not.
bool changes_meaning(const Recipe& recipe, std::string_view key);

bool is_custom_data(const Recipe& recipe);            // data.source: arrays of a program
data::LabelKind label_kind_of(const Recipe& recipe);  // by data.target

// All keys as a Markdown table: key, type, default, allowed values, meaning.
std::string recipe_reference();

struct BuiltinRecipe {
  std::string_view name;  // as given to load_recipe
  std::string_view text;  // TOML
};
std::span<const BuiltinRecipe> builtin_recipes();        // sorted by name
std::string_view recipe_summary(std::string_view text);  // the first line of the header comment

inline constexpr std::string_view kDefaultRecipe = "fashion_mnist";  // of `lathe train` without a name

// The same kind of run made small: tiny shapes, synthetic data, a few steps, so that the f64 reference interpreter
// does it in seconds. Valid whenever `recipe` is.
Recipe tiny_twin(const Recipe& recipe);

}  // namespace lathe
