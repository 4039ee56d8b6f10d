// Learning-rate schedules: a function of the step, computed on the host and staged with the batch.
#pragma once

#include <cstdint>
#include <string>

namespace lathe {

struct ScheduleConfig {
  std::string name = "constant";  // constant, step, cosine
  double lr = 0.1;
  double min_lr = 0;         // cosine: at the end
  int64_t warmup_steps = 0;  // linear from lr / warmup_steps
  int64_t total_steps = 1;
  int64_t step_every = 1;  // step: in steps
  double gamma = 0.1;      // step: factor
};

double learning_rate(const ScheduleConfig&, int64_t step);  // step from 0

}  // namespace lathe
