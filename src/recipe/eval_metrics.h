// The numbers that evaluation measures and a run can be judged by (train.monitor): for which data.target, and which way
// is better. EvalResult::each has the same names.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "data/source.h"

namespace lathe {

struct EvalMetric {
  std::string_view name;
  bool higher;  // is better
  data::LabelKinds targets;
};

// input_psnr is no row: it is that of the data, the same in every evaluation. Nor is perplexity, which goes with the
// loss.
inline constexpr EvalMetric kEvalMetrics[] = {
    {"loss",
     false,
     {data::LabelKind::class_index, data::LabelKind::value, data::LabelKind::mask, data::LabelKind::image}},
    {"accuracy", true, {data::LabelKind::class_index, data::LabelKind::mask}},
    {"iou", true, {data::LabelKind::mask}},
    {"rmse", false, {data::LabelKind::value}},
    {"mae", false, {data::LabelKind::value}},
    {"r2", true, {data::LabelKind::value}},
    {"psnr", true, {data::LabelKind::image}},
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

}  // namespace lathe
