// report: a run directory as one page (report.html): curves, confusion matrix, sample predictions, memory over the
// step, time per node against the machine's limits.
#pragma once

#include <string>
#include <vector>

namespace lathe {

// Reads the run's metrics and its newest valid checkpoint, evaluates it and times one step, on the run's device. `sets`
// override recipe keys.
std::string make_report(const std::string& run, const std::vector<std::string>& sets = {});

// Writes it to `run`/report.html and returns that path.
std::string write_report(const std::string& run, const std::vector<std::string>& sets = {});

}  // namespace lathe
