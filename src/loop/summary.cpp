#include "loop/summary.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace lathe {

std::string summary_json(const TrainResult& r) {
  const auto number = [](double v) {
    return std::isfinite(v) ? nlohmann::ordered_json(v) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json j{
      {"out", r.out},
      {"device", r.device},
      {"ranks", r.ranks},
      {"preempted", r.preempted},
      {"stopped_early", r.stopped_early},
      {"steps", r.steps},
      {"skipped_steps", r.skipped},
      {"best_step", r.best_step > 0 ? nlohmann::ordered_json(r.best_step) : nlohmann::ordered_json(nullptr)},
      {"loss", number(r.loss)},
      {"test_loss", number(r.eval_loss)},
      {"test_accuracy", number(r.accuracy)},
      {"samples_per_second", number(r.samples_per_second)},
      {"training_seconds", r.total_seconds},
      {"timed_from_step", r.timed_from},
      {"part_seconds", r.seconds},
      {"gflops", r.flops_per_second / 1e9},
      {"peak_gflops", r.peak_flops > 0 ? number(r.peak_flops / 1e9) : nlohmann::ordered_json(nullptr)},
      {"percent_of_peak",
       r.peak_flops > 0 ? number(100 * r.flops_per_second / r.peak_flops) : nlohmann::ordered_json(nullptr)},
      {"memory_predicted", r.memory.total()},
      {"memory_allocated", r.allocated},
      {"resident_bytes", r.resident_bytes},
      {"outside_estimated", r.outside_estimated},
      {"outside_measured", r.outside_measured},
      {"data_wait_seconds", r.wait_seconds},
      {"communication_seconds", r.communication_seconds},
      {"exposed_communication_seconds", r.exposed_seconds},
      {"first_step_done_s", r.start_seconds},
      {"first_step_done_cpu_s", r.start_cpu_seconds},
      {"device_notes", r.device_notes},
      // Of all steps but the first.
      {"device_calls",
       {{"launches", r.in_steps.launches},
        {"blocking", r.in_steps.blocking},
        {"pauses", r.in_steps.pauses},
        {"allocations", r.in_steps.allocations}}}};
  for (const auto& found : {r.validation, r.test}) {
    if (!found) continue;
    const char* set = data::to_string(found->split);
    j[fmt::format("{}_loss", set)] = number(found->loss);
    found->each([&](const char* name, double value) { j[fmt::format("{}_{}", set, name)] = number(value); });
  }
  for (const RankRow& row : r.by_rank) j["by_rank"].push_back(nlohmann::ordered_json::parse(to_json(row)));
  if (!r.warnings.empty()) j["warnings"] = r.warnings;
  return j.dump(2) + "\n";
}

}  // namespace lathe
