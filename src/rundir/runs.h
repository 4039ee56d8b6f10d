// Run directories, looked at from outside: what each trained, how far it came and how well; several compared. Reads
// recipe.toml, metrics.jsonl, summary.json, the manifest of the newest checkpoint and the lock; disturbs no run that is
// at work.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/page/curve.h"
#include "io/page/table.h"
#include "recipe/recipe.h"

namespace lathe {

enum class RunState {  // What became of a run.
  running,             // a process holds its lock
  finished,            // trained to its end
  stopped,             // by a signal: --resume continues
  failed,              // ended by an error, or killed
  unreadable,          // recipe.toml or metrics.jsonl
};
std::string_view to_string(RunState);  // its name

struct RunInfo {                           // A run directory, read.
  std::string path;                        // of the directory
  RunState state = RunState::unreadable;   // now
  std::string problem;                     // why it is unreadable
  Recipe recipe;                           // as resolved
  std::vector<std::string> warnings;       // of what was skipped in its files
  int64_t step = 0;                        // the last that was logged, or that it was stopped after
  int64_t skipped = 0;                     // refused steps: not finite
  std::optional<int64_t> total_steps;      // where a line of the log has it
  std::optional<double> seconds;           // of training, all parts; without a summary: to the last line
  int64_t timed_from = 0;                  // > 0: how long the steps before took is not known
  std::map<std::string, io::Line> curves;  // by the names in metrics.jsonl: "loss", "validation_loss", "eval_loss", ...
  std::optional<double> best(const std::string& curve) const;  // largest of an accuracy or score, else smallest
  std::optional<double> last(const std::string& curve) const;  // of its values
};

// The directory itself if it is a run, else the runs in it, by name. UserError (missing_input): there is no such
// directory.
std::vector<std::string> find_runs(const std::string& dir);
RunInfo read_run(const std::string& path);  // never throws for what a file holds: state says it

// A key of the recipes that is not the same in all runs, with its value (as TOML) in each.
struct RunDifference {
  std::string key;                  // "optimizer.lr"
  std::vector<std::string> values;  // by run; "-": it has no such key
};
std::vector<RunDifference> run_differences(const std::vector<RunInfo>&);  // keys in the order of the table

// The runs as rows of a table, with a header; the first column is the name. Of the validation set the best value of
// each metric is shown, of the test set the last one: nothing is chosen by it.
io::ReportTable runs_table(const std::vector<RunInfo>&);
// Takes columns out, the least important first, until the table is at most so wide with two spaces between columns; the
// first stays, and so do steps, time and state. Returns the names of those that went.
std::vector<std::string> narrow_runs_table(io::ReportTable&, size_t width);
io::ReportTable differences_table(const std::vector<RunInfo>&);  // a row per key, a column per run
// One page: both tables and every curve of all runs overlaid; or as a picture the validation loss where all runs with
// an evaluation have one, else the test loss (the training loss where no run was evaluated). Runs that could not be
// read are left out.
std::string compare_html(const std::vector<RunInfo>&);
std::string compare_svg(const std::vector<RunInfo>&);  // "" when no run has a point

}  // namespace lathe
