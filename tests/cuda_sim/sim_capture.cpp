// Captures of streams, the graphs that they become, and waits for events.
#include <algorithm>
#include <utility>

#include "sim_entry.h"
#include "sim_state.h"

namespace lathe::sim {
namespace {

constexpr int kErrorStreamCaptureUnjoined = 904;

template <class T, class Handle>
T& of(Handle handle) {
  return *reinterpret_cast<T*>(handle);
}

void add_step(SimStream& s, CapturedStep step) {
  step.branch = s.branch;
  ++s.capture->clocks[s.branch][s.branch];
  s.capture->steps.push_back(std::move(step));
}

void add_branch(SimStream& s, const std::shared_ptr<Capture>& capture) {
  s.capturing = true;
  s.invalidated = false;
  s.capture = capture;
  s.branch = capture->branches.size();
  capture->branches.push_back(&s);
  capture->clocks.emplace_back();
}

int wait_captured(SimStream& s, const SimEvent& e) {
  const std::shared_ptr<Capture> capture = e.capture.lock();
  if (!capture) return report(kErrorCapturedEvent, "cuStreamWaitEvent for an event of a capture that has ended");
  if (!s.capturing) add_branch(s, capture);
  if (s.capture != capture) return report(kErrorStreamCaptureIsolation, "cuStreamWaitEvent for another capture");
  join(capture->clocks[s.branch], capture->events[e.number]);
  add_step(s, {.kind = CapturedStep::Kind::wait, .event = e.number});
  return kSuccess;
}

// A graph's branches run on streams of their own, as far as orders go; branch 0 is the stream of the launch.
class BranchRun {
 public:
  BranchRun(const SimGraph& graph, SimStream& stream) : graph_(graph), own_(graph.branches), events_(graph.events) {
    branches_.push_back(&stream);
    State& s = state();
    for (size_t b = 1; b < graph.branches; ++b) {
      SimStream& own = own_[b];
      own.id = *s.free_stream_ids.begin();  // a card has more of them than a Program has lanes
      s.free_stream_ids.erase(s.free_stream_ids.begin());
      own.clock = s.last_clock[static_cast<size_t>(own.id)];
      branches_.push_back(&own);
    }
  }
  ~BranchRun() {
    State& s = state();
    for (size_t b = 1; b < own_.size(); ++b) {
      s.last_clock[static_cast<size_t>(own_[b].id)] = own_[b].clock;
      s.free_stream_ids.insert(own_[b].id);
    }
  }

  int run() {
    for (const CapturedStep& step : graph_.steps) {
      SimStream& s = *branches_[step.branch];
      switch (step.kind) {
        case CapturedStep::Kind::operation:
          if (const int status = run_now(s, step.operation); status != kSuccess) return status;
          break;
        case CapturedStep::Kind::record: events_[step.event] = {s.clock, s.free_at}; break;
        case CapturedStep::Kind::wait:
          join(s.clock, events_[step.event].first);
          s.free_at = std::max(s.free_at, events_[step.event].second);
          break;
      }
    }
    return kSuccess;
  }

 private:
  const SimGraph& graph_;
  std::vector<SimStream> own_;
  std::vector<SimStream*> branches_;
  std::vector<std::pair<Clock, double>> events_;
};

}  // namespace

void add_captured(SimStream& s, Operation o) { add_step(s, {.operation = std::move(o)}); }

void record_captured(SimStream& s, SimEvent& e) {
  e.capture = s.capture;
  e.number = s.capture->events.size();
  add_step(s, {.kind = CapturedStep::Kind::record, .event = e.number});
  s.capture->events.push_back(s.capture->clocks[s.branch]);
}

int sim_cuStreamWaitEvent(StreamHandle stream, EventHandle event, unsigned) {
  if (state().lost) return state().lost;
  const Lock lock(state().mutex);
  if (!is_live(stream) || !is_live(event))
    return report(kErrorInvalidHandle, "cuStreamWaitEvent: no such stream or event");
  auto& s = of<SimStream>(stream);
  auto& e = of<SimEvent>(event);
  if (s.capturing && !e.captured && e.recorded) {
    s.invalidated = true;
    return report(kErrorStreamCaptureIsolation, "cuStreamWaitEvent across the border of a capture");
  }
  ++state().counters.events_waited;
  if (!e.recorded) return kSuccess;
  if (e.captured) return wait_captured(s, e);
  join(s.clock, e.clock);
  s.free_at = std::max(s.free_at, e.time);
  return kSuccess;
}

int sim_cuStreamBeginCapture_v2(StreamHandle stream, int) {
  const Lock lock(state().mutex);
  if (!is_live(stream)) return report(kErrorInvalidHandle, "cuStreamBeginCapture: no such stream");
  auto& s = of<SimStream>(stream);
  if (s.capturing) return report(kErrorStreamCaptureUnmatched, "cuStreamBeginCapture: the stream is being captured");
  add_branch(s, std::make_shared<Capture>());
  ++state().capturing;
  return kSuccess;
}
int sim_cuStreamEndCapture(StreamHandle stream, GraphHandle* graph) {
  const Lock lock(state().mutex);
  *graph = nullptr;
  if (!is_live(stream) || !of<SimStream>(stream).capturing || of<SimStream>(stream).branch != 0)
    return report(kErrorStreamCaptureUnmatched, "cuStreamEndCapture: no capture began on the stream");
  const std::shared_ptr<Capture> capture = of<SimStream>(stream).capture;
  --state().capturing;
  bool invalidated = false, unjoined = false;
  for (size_t b = 0; b < capture->branches.size(); ++b) {
    SimStream& s = *capture->branches[b];
    invalidated = invalidated || s.invalidated;
    unjoined = unjoined || capture->clocks[0][b] != capture->clocks[b][b];
    s.capturing = false;
    s.capture.reset();
  }
  if (invalidated) return kErrorStreamCaptureInvalidated;
  if (unjoined)
    return report(kErrorStreamCaptureUnjoined, "cuStreamEndCapture: a stream that was forked was not joined");
  auto made = std::make_unique<SimGraph>();
  made->branches = capture->branches.size();
  made->events = capture->events.size();
  made->steps = std::move(capture->steps);
  state().handles.insert(made.get());
  *graph = reinterpret_cast<GraphHandle>(made.release());
  return kSuccess;
}
int sim_cuGraphInstantiateWithFlags(GraphExec* exec, GraphHandle graph, unsigned long long) {
  const Lock lock(state().mutex);
  if (!is_live(graph)) return report(kErrorInvalidHandle, "cuGraphInstantiate: no such graph");
  trace_call("make", "cuGraphInstantiate");
  auto made = std::make_unique<SimGraph>(of<SimGraph>(graph));
  state().handles.insert(made.get());
  *exec = reinterpret_cast<GraphExec>(made.release());
  return kSuccess;
}
int sim_cuGraphLaunch(GraphExec exec, StreamHandle stream) {
  if (state().lost) return state().lost;
  const Lock lock(state().mutex);
  if (!is_live(exec) || !is_live(stream)) return report(kErrorInvalidHandle, "cuGraphLaunch: no such graph or stream");
  if (!in_context()) return report(kErrorInvalidContext, "cuGraphLaunch: the thread has no context");
  ++state().counters.graph_launches;
  auto& s = of<SimStream>(stream);
  const double begin = std::max(s.free_at, card_time());
  if (const int status = BranchRun(of<SimGraph>(exec), s).run(); status != kSuccess) return status;
  trace_span("graph", s.id, begin, s.free_at);
  return kSuccess;
}
static int destroy_graph(void* handle) {
  const Lock lock(state().mutex);
  if (!is_live(handle)) return report(kErrorInvalidHandle, "no such graph to destroy");
  state().handles.erase(handle);
  const std::unique_ptr<SimGraph> owned(static_cast<SimGraph*>(handle));
  return kSuccess;
}
int sim_cuGraphExecDestroy(GraphExec exec) { return destroy_graph(exec); }
int sim_cuGraphDestroy(GraphHandle graph) { return destroy_graph(graph); }

}  // namespace lathe::sim
