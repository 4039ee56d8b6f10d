#include "loop/profile.h"

#include <algorithm>

#include "backend/traced_device.h"
#include "base/format_bytes.h"
#include "base/thread_rank.h"
#include "base/trace.h"
#include "comm/clock.h"
#include "comm/collectives.h"
#include "comm/socket.h"
#include "comm/text.h"
#include "io/trace_file.h"
#include "loop/ranks/step_timeline.h"
#include "rundir/progress.h"
#include "rundir/run_dir.h"

namespace lathe {
namespace {

constexpr int64_t kStepsBefore = 3;
constexpr int64_t kMostSpans = 200'000;  // about 40 MB of JSON: what viewers still open at once
constexpr int64_t kFewestSpans = 1'000;  // of one of many processes

struct RankTraces {
  std::vector<io::TraceProcess> ranks;  // nothing: another rank has them
  double uncertainty = 0;               // seconds, of their clocks
};

// Of ranks that are threads of this process.
RankTraces split_process(const TraceData& data, const std::string& title) {
  RankTraces out;
  for (TraceData& d : io::split_ranks(data))
    out.ranks.push_back({fmt::format("rank {}", out.ranks.size()), std::move(d)});
  if (out.ranks.size() == 1) out.ranks[0].name = title;
  return out;
}

// Of ranks that are processes; times are moved to the first one's clock before they are sent.
RankTraces gather_processes(comm::Group& group, TraceData data) {
  const comm::ClockOffset clock = comm::find_clock_offset(group, Trace::now);
  for (TraceSpan& s : data.spans) {
    s.begin += clock.ns;
    s.end += clock.ns;
  }
  const std::string head = fmt::format("{}\n{}\n", clock.uncertainty, comm::host_name());
  RankTraces out;
  for (const std::string& text : comm::gather_text(group, head + io::trace_text(data))) {
    const size_t number = text.find('\n'), host = text.find('\n', number + 1);
    LATHE_CHECK(number != text.npos && host != text.npos, "a trace without host");
    out.uncertainty = std::max(out.uncertainty, 1e-9 * std::stod(text));
    out.ranks.push_back({fmt::format("rank {} on {}", out.ranks.size(), text.substr(number + 1, host - number - 1)),
                         io::parse_trace_text(std::string_view(text).substr(host + 1))});
  }
  return out;
}

}  // namespace

StepProfile::StepProfile(const Recipe& r, std::string path, int64_t steps, comm::Group* group)
    : path_(std::move(path)),
      title_(fmt::format("lathe train {}", r.name)),
      facts_{{"recipe", r.name}, {"model", r.model.family}, {"device", r.device.name}},
      wanted_(steps),
      group_(group),
      trace_(std::make_unique<Trace>(std::max(kFewestSpans, kMostSpans / (group ? group->size() : 1)))) {
  trace_->thread_lane("main thread");  // the first row
}

StepProfile::~StepProfile() = default;

void StepProfile::after_step(Executor& e) {
  if (bytes_ >= 0 || late_) return;
  const int64_t now = Trace::now();
  if (trace_->on()) {
    trace_->add(trace_->thread_lane("main thread"), trace_->label({fmt::format("step {}", calls_ + 1), kStepSpan}),
                last_, now);
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
    // Ranks that are threads would wait for the one that writes, and that would look like a slow rank.
    late_ = thread_rank() >= 0;
    if (!late_) write();
  }
  last_ = Trace::now();
}

void StepProfile::finish() {
  if (bytes_ >= 0) return;
  trace_->stop();
  write();
}

void StepProfile::write() {
  RankTraces all = group_ ? gather_processes(*group_, trace_->data()) : split_process(trace_->data(), title_);
  bytes_ = 0;
  if (!all.ranks.empty()) {
    facts_.emplace_back("steps", std::to_string(steps_));
    if (group_)
      facts_.emplace_back("clocks", fmt::format("those of all ranks as that of the first, within {:.0f} us",
                                                std::max(1.0, 1e6 * all.uncertainty)));
    io::PosixFs fs;
    const std::string text = io::trace_json(all.ranks, facts_);
    replace_text(fs, path_, text);
    bytes_ = static_cast<int64_t>(text.size());
    std::vector<NamedTrace> traces;
    for (const io::TraceProcess& p : all.ranks) {
      traces.push_back({p.name, &p.data});
      spans_ += static_cast<int64_t>(p.data.spans.size());
      lanes_ += static_cast<int64_t>(p.data.lanes.size());
      left_out_ += p.data.left_out;
    }
    const std::string beside = io::join_path(io::parent_path(path_), kTimelineFile);
    auto timeline = find_timeline(traces);
    if (timeline) timeline->uncertainty = all.uncertainty;
    if (timeline)
      replace_text(fs, beside, to_json(*timeline));
    else
      fs.remove_file(beside);  // of an earlier part of the run, on other ranks
  }
  // The others wait here, not in a step, whose times would be wrong.
  if (group_) comm::Collectives(*group_, 64).barrier();
}

std::string StepProfile::about() const {
  return fmt::format("{} ({} steps, {} spans on {} lanes, {}{})", path_, steps_, spans_, lanes_, format_bytes(bytes_),
                     steps_ == 0
                         ? fmt::format("; the run is over in {} steps, the trace begins after {}", calls_, kStepsBefore)
                     : left_out_ > 0 ? fmt::format("; {} spans left out", left_out_)
                                     : "");
}

}  // namespace lathe
