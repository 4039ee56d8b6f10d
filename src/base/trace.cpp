#include "base/trace.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

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
  const std::lock_guard lock(mutex_);
  std::string free = name;
  for (int i = 2; std::ranges::find(lanes_, free) != lanes_.end(); ++i) free = fmt::format("{} {}", name, i);
  lanes_.push_back(std::move(free));
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

std::vector<TraceSpan> Trace::spans() const {
  const auto count = std::min(slots_.size(), static_cast<size_t>(next_.load()));
  std::vector<TraceSpan> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i)
    if (slots_[i].written.load(std::memory_order_acquire)) out.push_back(slots_[i].span);
  return out;
}

std::vector<std::string> Trace::lanes() const {
  const std::lock_guard lock(mutex_);
  return lanes_;
}

std::vector<TraceLabel> Trace::labels() const {
  const std::lock_guard lock(mutex_);
  return labels_;
}

int64_t Trace::left_out() const { return std::max<int64_t>(0, next_.load() - static_cast<int64_t>(slots_.size())); }

}  // namespace lathe
