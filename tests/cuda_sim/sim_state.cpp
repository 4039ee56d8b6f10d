#include "sim_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

namespace lathe::sim {

State& state() {
  static State* const s = [] {
    auto* made = new State;  // lives as long as the process: driver objects outlive static destructors
    for (int i = 1; i < kMaxStreams; ++i) made->free_stream_ids.insert(i);
    return made;
  }();
  return *s;
}

double slowness() {
  static const char* const set = std::getenv("LATHE_CUDA_SIM_SLOW");
  static const double factor = set ? std::atof(set) : 0;
  return factor;
}

double card_time() {
  if (slowness() == 0) return state().host_time;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void wait_until(double time) {
  if (slowness() == 0) state().host_time = std::max(state().host_time, time);
  const double rest = time - card_time();
  if (rest > 0) std::this_thread::sleep_for(std::chrono::duration<double>(rest));
}

namespace {

std::FILE* trace_file() {
  static const char* const path = std::getenv("LATHE_CUDA_SIM_TRACE");
  static std::FILE* const file = path ? std::fopen(path, "we") : nullptr;
  return file;
}

}  // namespace

void trace_call(const char* kind, const char* name) {
  if (trace_file()) std::fprintf(trace_file(), "%s %s 0 0\n", kind, name);
}

void trace_span(const char* kind, int stream, double begin, double end) {
  if (trace_file()) std::fprintf(trace_file(), "%s %d %.9f %.9f\n", kind, stream, begin, end);
}

void join(Clock& into, const Clock& other) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

int report(int status, std::string text) {
  State& s = state();
  std::fprintf(stderr, "cuda_sim: %s\n", text.c_str());
  s.last_report = text;
  s.reports.push_back(std::move(text));
  return status;
}

std::vector<std::string> take_reports() {
  const Lock lock(state().mutex);
  state().last_report.clear();
  return std::exchange(state().reports, {});
}

Counters counters() { return state().counters; }
void set_device_memory(int64_t bytes) { state().memory = static_cast<size_t>(bytes); }
void set_largest_grid(int64_t blocks) { state().largest_grid = blocks; }
int64_t live_allocations() { return static_cast<int64_t>(state().device.size() + state().pinned.size()); }

bool is_live(const void* handle) { return handle && state().handles.count(handle) != 0; }

Allocation* find_device(Address a, size_t bytes) {
  auto at = state().device.upper_bound(a);
  if (at == state().device.begin()) return nullptr;
  Allocation& m = (--at)->second;
  return a >= m.base && bytes <= m.bytes && a - m.base <= m.bytes - bytes ? &m : nullptr;
}

std::string describe(Address a) {
  State& s = state();
  if (a == 0) return "a null address";
  auto freed = s.freed.upper_bound(a);
  if (freed != s.freed.begin() && a - (--freed)->first < freed->second)
    return fmt::format("inside memory of {} bytes that was freed", freed->second);
  auto at = s.device.upper_bound(a);
  if (at != s.device.begin()) {
    const Allocation& m = (--at)->second;
    if (a - m.base < m.bytes)
      return fmt::format("{} bytes before the end of an allocation of {}", m.base + m.bytes - a, m.bytes);
    return fmt::format("{} bytes past an allocation of {}", a - m.base - m.bytes, m.bytes);
  }
  return "in no allocation";
}

int check_range(const std::string& what, Address a, size_t bytes) {
  if (find_device(a, bytes)) return cuda::kSuccess;
  return report(cuda::kErrorIllegalAddress, fmt::format("{}: {} bytes at {:#x} are {}", what, bytes, a, describe(a)));
}

namespace {

// Orders one access after all earlier ones; reports the first that it races with.
int check_order(SimStream& stream, uint32_t op, const Access& access) {
  State& s = state();
  Allocation* m = find_device(access.address, access.bytes);
  if (!m || access.bytes == 0) return cuda::kSuccess;
  const size_t first = (access.address - m->base) / kGranule,
               last = (access.address + access.bytes - 1 - m->base) / kGranule;
  const auto me = static_cast<size_t>(stream.id);
  const uint32_t now = stream.clock[me];
  for (size_t g = first; g <= last; ++g) {
    History& h = m->history[g];
    const auto race = [&](uint32_t other, const char* did, uint8_t other_stream) {
      return report(
          cuda::kErrorUnknown,
          fmt::format("race: \"{}\" on stream {} {} byte {} of an allocation of {} bytes while \"{}\" on stream {}, "
                      "which it does not wait for, {} it",
                      s.op_names[op], stream.id, access.write ? "writes" : "reads", g * kGranule, m->bytes,
                      s.op_names[other], other_stream, did));
    };
    if (h.write_time > stream.clock[h.write_stream]) return race(h.write_op, "writes", h.write_stream);
    if (access.write) {
      for (size_t r = 0; r < kMaxStreams; ++r)
        if (h.read_time[r] > stream.clock[r]) return race(h.read_op[r], "reads", static_cast<uint8_t>(r));
      h.write_time = now;
      h.write_op = op;
      h.write_stream = static_cast<uint8_t>(stream.id);
    } else {
      h.read_time[me] = now;
      h.read_op[me] = op;
    }
  }
  return cuda::kSuccess;
}

uint64_t fnv(const void* data, size_t bytes) {
  uint64_t h = 0xcbf29ce484222325u;
  const auto* p = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) h = (h ^ p[i]) * 0x100000001b3u;
  return h;
}

}  // namespace

bool has_flag(const char* name) { return version_of(name, 0) != 0; }

int version_of(const char* name, int usual) {
  const char* set = std::getenv(fmt::format("LATHE_CUDA_SIM_{}", name).c_str());
  return set ? std::atoi(set) : usual;
}

std::string card_name() {
  const char* set = std::getenv("LATHE_CUDA_SIM_NAME");
  return set ? set : "simulated card";
}

int capability() { return version_of("CAPABILITY", 80); }

size_t free_bytes() {
  const size_t gone = state().used + static_cast<size_t>(version_of("TAKEN", 0));
  return state().memory > gone ? state().memory - gone : 0;
}

namespace {

// LATHE_CUDA_SIM_LOST=operation,error: that operation is the last. It seems to start, like all work on a card; the next
// call gets the error.
bool is_last(State& s) {
  static const char* const set = std::getenv("LATHE_CUDA_SIM_LOST");
  if (!set) return false;
  int64_t operation = 0;
  int error = 0;
  if (std::sscanf(set, "%ld,%d", &operation, &error) == 2 && ++s.operations == operation) s.lost = error;
  return s.lost != 0;
}

}  // namespace

int run_now(SimStream& stream, const Operation& o) {
  State& s = state();
  if (is_last(s)) return cuda::kSuccess;
  const auto me = static_cast<size_t>(stream.id);
  join(stream.clock, s.host);
  stream.clock[me] = ++s.ticks[me];
  // Names repeat from step to step.
  static std::map<std::string, uint32_t> numbers;
  const auto [number, added] = numbers.try_emplace(o.name, static_cast<uint32_t>(s.op_names.size()));
  if (added) s.op_names.push_back(o.name);
  std::vector<Access> accesses;
  const size_t reads_in_flight = s.in_flight.size();
  const double begin = card_time();
  if (const int status = o.work(accesses); status != cuda::kSuccess) return status;
  const double seconds = slowness() > 0 ? slowness() * (card_time() - begin) : o.seconds;
  if (has_flag("SERIAL")) stream.free_at = std::max(stream.free_at, s.engine_free);
  s.engine_free = stream.free_at = std::max(stream.free_at, begin) + seconds;
  for (size_t i = reads_in_flight; i < s.in_flight.size(); ++i) {
    InFlight& f = s.in_flight[i];
    f.stream = stream.id;
    f.time = stream.clock[me];
    f.name = o.name;
    if (f.src) f.hash = fnv(f.src, f.bytes);
  }
  for (const Access& a : accesses)
    if (const int status = check_order(stream, number->second, a); status != cuda::kSuccess) return status;
  return cuda::kSuccess;
}

int submit(cuda::StreamHandle handle, Operation o) {
  if (state().lost) return state().lost;
  if (!is_live(handle)) return report(cuda::kErrorInvalidHandle, fmt::format("{}: no such stream", o.name));
  if (!in_context()) return report(cuda::kErrorInvalidContext, fmt::format("{}: the thread has no context", o.name));
  auto& stream = *reinterpret_cast<SimStream*>(handle);
  if (!stream.capturing) return run_now(stream, o);
  if (stream.invalidated) return cuda::kErrorStreamCaptureInvalidated;
  add_captured(stream, std::move(o));
  return cuda::kSuccess;
}

int host_waits(const Clock& clock) {
  State& s = state();
  join(s.host, clock);
  int status = cuda::kSuccess;
  std::vector<InFlight> left;
  for (InFlight& f : s.in_flight) {
    if (f.time > s.host[static_cast<size_t>(f.stream)]) {
      left.push_back(std::move(f));
      continue;
    }
    if (f.dst) std::memcpy(f.dst, f.data.data(), f.data.size());
    if (f.src && fnv(f.src, f.bytes) != f.hash)
      status = report(
          cuda::kErrorUnknown,
          fmt::format("race: the host changed {} bytes of pinned memory before \"{}\" on stream {} had read them",
                      f.bytes, f.name, f.stream));
  }
  s.in_flight = std::move(left);
  return status;
}

int forbid_in_capture(const char* call) {
  State& s = state();
  if (s.capturing == 0) return cuda::kSuccess;
  return report(cuda::kErrorStreamCaptureUnsupported, fmt::format("{} while a stream is being captured", call));
}

}  // namespace lathe::sim
