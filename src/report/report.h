// report: a run directory as one page (report.html): curves, confusion matrix, sample predictions, memory over the
// step, time per node against the machine's limits; of a run on ranks also what each of them did.
#pragma once

#include <string>
#include <vector>

namespace lathe {

struct Compiled;

// Reads the run's metrics and its newest valid checkpoint, evaluates it and times one step, on the run's device. `sets`
// override recipe keys. What cannot be made of it (no checkpoint, data or device not there) is a sentence in the page
// that says why. UserError: no run, or metrics that are none.
std::string make_report(const std::string& run, const std::vector<std::string>& sets = {});
// At once, for a run that has just been stopped, or one of a launcher, whose other ranks would wait: curves, ranks,
// recipe and the memory of its plan; nothing is measured.
std::string make_short_report(const std::string& run, const Compiled& plan);

// Writes it to `run`/report.html and returns that path.
std::string write_report(const std::string& run, const std::vector<std::string>& sets = {});
std::string write_short_report(const std::string& run, const Compiled& plan);  // the same of the short one

}  // namespace lathe
