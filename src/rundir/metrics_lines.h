// The lines of a run's metrics.jsonl as they can be read: a killed process may have left half a line at the end, and
// what is no object with a step is not the program's. Both are skipped and reported.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

struct MetricsProblems {
  bool cut = false;          // the last line has no end
  std::vector<int64_t> bad;  // numbers of the lines, from 1, that are no objects with a step
  std::vector<std::string> texts(const std::string& path) const;  // a sentence each, for people
};

// f(step, object, line) of each line that counts, in order.
using OnMetricsLine = std::function<void(int64_t step, const nlohmann::json&, std::string_view line)>;
MetricsProblems each_metrics_line(std::string_view text, const OnMetricsLine& f);

}  // namespace lathe
