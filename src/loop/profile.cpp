#include "loop/profile.h"

#include "backend/traced_device.h"
#include "base/format_bytes.h"
#include "base/trace.h"
#include "io/trace_file.h"
#include "rundir/progress.h"
#include "rundir/run_dir.h"

namespace lathe {
namespace {

constexpr int64_t kStepsBefore = 3;
constexpr int64_t kMostSpans = 200'000;  // about 40 MB of JSON: what viewers still open at once

}  // namespace

StepProfile::StepProfile(const Recipe& r, std::string path, int64_t steps)
    : path_(std::move(path)),
      title_(fmt::format("lathe train {}", r.name)),
      facts_{{"recipe", r.name}, {"model", r.model.family}, {"device", r.device.name}},
      wanted_(steps),
      trace_(std::make_unique<Trace>(kMostSpans)) {
  trace_->thread_lane("main thread");  // the first row
}

StepProfile::~StepProfile() = default;

void StepProfile::after_step(Executor& e) {
  if (bytes_ >= 0) return;
  const int64_t now = Trace::now();
  if (trace_->on()) {
    trace_->add(trace_->thread_lane("main thread"), trace_->label({fmt::format("step {}", calls_ + 1), "step"}), last_,
                now);
    ++steps_;
  }
  if (++calls_ == kStepsBefore) {
    e.synchronize();
    trace_->start();
  }
  if (steps_ == wanted_) {
    e.synchronize();
    if (auto* device = dynamic_cast<TracedDevice*>(&e.device())) {
      e.device().stream(Lane::transfer).synchronize();
      device->add_spans(*trace_);
    }
    trace_->stop();
    write();
  }
  last_ = Trace::now();
}

void StepProfile::finish() {
  if (bytes_ >= 0) return;
  trace_->stop();
  write();
}

void StepProfile::write() {
  facts_.emplace_back("steps", std::to_string(steps_));
  const std::string text = io::trace_json(*trace_, title_, facts_);
  io::PosixFs fs;
  replace_text(fs, path_, text);
  bytes_ = static_cast<int64_t>(text.size());
}

std::string StepProfile::about() const {
  return fmt::format("{} ({} steps, {} spans on {} lanes, {}{})", path_, steps_, trace_->spans().size(),
                     trace_->lanes().size(), format_bytes(bytes_),
                     steps_ == 0
                         ? fmt::format("; the run is over in {} steps, the trace begins after {}", calls_, kStepsBefore)
                     : trace_->left_out() > 0 ? fmt::format("; {} spans left out", trace_->left_out())
                                              : "");
}

}  // namespace lathe
