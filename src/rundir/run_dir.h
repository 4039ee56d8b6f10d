// Files of a run directory apart from the checkpoints.
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <span>
#include <string>
#include <variant>

#include "io/event_file.h"
#include "io/files/fs.h"
#include "io/files/text_file.h"
#include "recipe/recipe.h"

namespace lathe {

inline constexpr const char* kSummaryFile = "summary.json";  // within a run directory

std::string job_id();  // Slurm's, else the process's

// UserError where the run's recipe.toml computes other numbers than this recipe; all keys are named.
void check_same_recipe(io::Fs&, const std::string& run, const Recipe&);

// One value of a line; a non-finite number is written as null.
struct Metric {
  const char* name = "";
  std::variant<int64_t, double> value;
};

// What a run measures: `dir`/metrics.jsonl, one JSON object a line, appended, and the same as scalars in a TensorBoard
// event file. Opening it for a resumed run drops lines past `step`, and its evaluation where that is still to be done
// (`evaluated` is false).
class MetricsLog {
 public:
  MetricsLog(io::Fs&, const std::string& dir, int64_t step, bool evaluated = true);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;
  // Starts with the step. Allocates nothing.
  void write(std::span<const Metric>);
  void write(std::initializer_list<Metric> m) { write(std::span(m.begin(), m.size())); }
  void sync();

 private:
  void write_events(std::span<const Metric>);
  std::FILE* file_;
  io::EventFile events_;
};

}  // namespace lathe
