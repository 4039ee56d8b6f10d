// The numbers that evaluation measures and a run can be judged by (train.monitor): for which data.target, and which way
// is better. EvalResult::each has the same names.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace lathe {

struct EvalMetric {
  std::string_view name;
  bool higher;               // is better
  std::string_view targets;  // values of data.target, each between blanks
};

// input_psnr is no row: it is that of the data, the same in every evaluation. Nor is perplexity, which goes with the
// loss.
inline constexpr EvalMetric kEvalMetrics[] = {
    {"loss", false, " class value mask image "},
    {"accuracy", true, " class mask "},
    {"iou", true, " mask "},
    {"rmse", false, " value "},
    {"mae", false, " value "},
    {"r2", true, " value "},
    {"psnr", true, " image "},
};

inline constexpr auto kEvalMetricNames = [] {
  std::array<std::string_view, std::size(kEvalMetrics)> names{};
  for (size_t i = 0; i < names.size(); ++i) names[i] = kEvalMetrics[i].name;
  return names;
}();

inline const EvalMetric* find_eval_metric(std::string_view name) {  // or null
  const auto* found = std::ranges::find(kEvalMetrics, name, &EvalMetric::name);
  return found == std::end(kEvalMetrics) ? nullptr : found;
}

inline bool has_target(const EvalMetric& m, std::string_view target) {
  const size_t at = m.targets.find(target);
  return at != 0 && at != m.targets.npos && m.targets[at - 1] == ' ' && m.targets[at + target.size()] == ' ';
}

}  // namespace lathe
