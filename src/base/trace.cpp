#include "base/trace.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/thread_rank.h"

namespace lathe {
namespace {

std::atomic<Trace*> the_trace{nullptr};
std::atomic<int64_t> traces_made{0};

// A thread's lane belongs to one trace; the next one gives it another.
struct ThreadLane {
  int64_t trace = 0;
  int32_t lane = 0;
};
thread_local ThreadLane thread_lane_of_this;

}  // namespace

Trace::Trace(int64_t most_spans) : slots_(static_cast<size_t>(most_spans)), number_(++traces_made) {
  Trace* none = nullptr;
  LATHE_CHECK(the_trace.compare_exchange_strong(none, this), "the process is traced already");
  labels_.push_back({"other work", "host"});
}

Trace::~Trace() { the_trace.store(nullptr); }

Trace* Trace::of_process() { return the_trace.load(std::memory_order_acquire); }

int64_t Trace::now() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

int32_t Trace::lane(const std::string& name) {
  const int rank = thread_rank();
  const std::lock_guard lock(mutex_);
  const auto is_taken = [&](const std::string& n) {
    return std::ranges::any_of(lanes_, [&](const TraceLane& l) { return l.rank == rank && l.name == n; });
  };
  std::string free = name;
  for (int i = 2; is_taken(free); ++i) free = fmt::format("{} {}", name, i);
  lanes_.push_back({std::move(free), rank});
  return static_cast<int32_t>(lanes_.size()) - 1;
}

int32_t Trace::thread_lane(const char* name) {
  if (thread_lane_of_this.trace != number_) thread_lane_of_this = {number_, lane(name)};
  return thread_lane_of_this.lane;
}

int32_t Trace::label(const TraceLabel& l) {
  const std::lock_guard lock(mutex_);
  labels_.push_back(l);
  return static_cast<int32_t>(labels_.size()) - 1;
}

int32_t Trace::label(const char* name, const char* kind) {
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < labels_.size(); ++i)
      if (labels_[i].name == name && labels_[i].kind == kind) return static_cast<int32_t>(i);
  }
  return label(TraceLabel{name, kind});
}

void Trace::add(int32_t lane, int32_t label, int64_t begin, int64_t end, bool part) {
  if (!on()) return;
  const auto i = static_cast<size_t>(next_.fetch_add(1, std::memory_order_relaxed));
  if (i >= slots_.size()) return;
  slots_[i].span = {lane, label, begin, end, part};
  slots_[i].written.store(true, std::memory_order_release);
}

TraceData Trace::data() const {
  const auto added = static_cast<size_t>(next_.load()), count = std::min(slots_.size(), added);
  TraceData out;
  out.spans.reserve(count);
  for (size_t i = 0; i < count; ++i)
    if (slots_[i].written.load(std::memory_order_acquire)) out.spans.push_back(slots_[i].span);
  out.left_out = static_cast<int64_t>(added - count);
  // After the spans: what they name is there.
  const std::lock_guard lock(mutex_);
  out.lanes = lanes_;
  out.labels = labels_;
  return out;
}

}  // namespace lathe
