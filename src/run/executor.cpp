#include "run/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/checked.h"
#include "base/stopwatch.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "run/lane_runner.h"

namespace lathe {
namespace {

constexpr int64_t kAlign = 256;

bool is_read(const Port& p) { return p.output_kind != OutputKind::state; }

struct SlotLayout {
  std::map<std::string, std::pair<int64_t, int64_t>, std::less<>> places;  // offset, bytes
  int64_t bytes = 0;
};

SlotLayout slot_layout(const ProgramSet& set) {
  SlotLayout out;
  for (const Program& p : set.programs)
    for (const Port& in : p.inputs)
      if (!is_state(in.kind)) {
        auto& place = out.places[in.name];
        place.second = std::max(place.second, in.type.bytes());
      }
  for (auto& [name, place] : out.places) {
    place.first = out.bytes;
    out.bytes += round_up(place.second, kAlign);
  }
  return out;
}

// Two slots on the device, in segments no larger than its largest allocation.
struct DeviceSlots {
  std::vector<int64_t> segments;
  std::map<std::string, std::pair<int32_t, int64_t>, std::less<>> places[2];  // segment, offset
  int64_t bytes = 0;
};

DeviceSlots device_slots(const SlotLayout& layout, const Target& target) {
  DeviceSlots out;
  if (target.host_memory || layout.bytes == 0) return out;
  int64_t at = 0;
  for (auto& places : out.places)
    for (const auto& [name, place] : layout.places) {
      if (out.segments.empty() || at + place.second > target.largest_allocation) {
        out.segments.push_back(0);
        at = 0;
      }
      places[name] = {static_cast<int32_t>(out.segments.size()) - 1, at};
      at += round_up(place.second, kAlign);
      out.segments.back() = std::min(at, target.largest_allocation);
    }
  for (const int64_t bytes : out.segments) out.bytes += bytes;
  return out;
}

int64_t read_bytes(const ProgramSet& set, OutputKind kind) {
  int64_t most = 0;
  for (const Program& p : set.programs) {
    int64_t sum = 0;
    for (const Port& o : p.outputs)
      if (o.output_kind == kind) sum += round_up(o.type.bytes(), kAlign);
    most = std::max(most, sum);
  }
  return most;
}

bool is_traced() {
  const Trace* trace = Trace::of_process();
  return trace && trace->on();
}

int64_t largest_state_bytes(const ProgramSet& set) {
  int64_t largest = 0;
  for (const Port& p : set.state) largest = std::max(largest, round_up(p.type.bytes(), kAlign));
  return largest;
}

}  // namespace

RunMemory run_memory(const ProgramSet& set, const Target& target, const ExecutorOptions& o) {
  RunMemory m;
  const SlotLayout layout = slot_layout(set);
  const int64_t slot = layout.bytes;
  m.arena = set.arena_bytes;
  m.device_staging = device_slots(layout, target).bytes;
  m.host_staging = o.slots * slot;
  m.metrics = o.ahead * read_bytes(set, OutputKind::metric) + read_bytes(set, OutputKind::result);
  m.communication = set.communication_bytes;
  m.snapshot = o.snapshot ? 2 * std::max(largest_state_bytes(set), round_up(o.largest_whole, kAlign)) : 0;
  return m;
}

// A Program's kernels and ports, ready to run.
struct Executor::Bound {
  std::vector<std::unique_ptr<Kernel>> kernels;
  struct Upload {
    int64_t slot_offset;
    Buffer device_slot[2];
    Buffer input;
  };
  std::vector<Upload> uploads;
  struct Read {
    std::string name;
    DType dtype;
    Buffer src;
    std::byte* dst;  // of the first place
    int64_t stride;  // between places; results have one
  };
  std::vector<Read> reads;
  std::unique_ptr<Recording> recording;  // of work(), where the device records
  std::vector<int32_t> labels;           // of the kernels in the Trace, where there is one
  bool has_lanes = false;                // several
  std::vector<bool> changes;             // by launch, then for the final copies: whether kept state is written
  bool changes_any = false;
};

namespace {

// What checkpoints keep; accumulated gradients are zero between steps.
bool is_kept(const Port& state) { return state.kind != InputKind::gradient; }

bool overlap(const Buffer& a, const Buffer& b) {
  return a.segment == b.segment && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

bool writes_kept(const ProgramSet& set, const Buffer& to) {
  return std::ranges::any_of(set.state, [&](const Port& s) {
    Buffer place = s.buffer;
    place.bytes = s.type.bytes();
    return is_kept(s) && overlap(place, to);
  });
}

std::vector<bool> changes_of(const ProgramSet& set, const Program& p) {
  std::vector<bool> out;
  for (const Launch& l : p.launches)
    out.push_back(std::ranges::any_of(l.args.out, [&](const Buffer& b) { return writes_kept(set, b); }));
  out.push_back(std::ranges::any_of(p.final_copies, [&](const FinalCopy& c) { return writes_kept(set, c.dst); }));
  return out;
}

}  // namespace

Executor::Executor(ProgramSet set, std::unique_ptr<Device> device, const ExecutorOptions& o)
    : set_(std::move(set)), device_(std::move(device)), predicted_(run_memory(set_, device_->target(), o)) {
  const SlotLayout layout = slot_layout(set_);
  slot_bytes_ = layout.bytes;
  for (const auto& [name, place] : layout.places) layout_[name] = {place.first, place.second};

  std::vector<int64_t> segments = set_.segments;
  const auto staging_segment = static_cast<int32_t>(segments.size());
  const DeviceSlots slots = device_slots(layout, device_->target());
  segments.insert(segments.end(), slots.segments.begin(), slots.segments.end());
  device_->allocate(segments);
  for (int64_t bytes : segments) allocated_ += bytes;
  const auto host = [&](int64_t bytes) {
    if (bytes == 0) return static_cast<std::byte*>(nullptr);
    allocated_ += bytes;
    return device_->allocate_staging(bytes);
  };
  for (int i = 0; i < o.slots; ++i) host_slots_.push_back(host(slot_bytes_));
  metrics_ = host(predicted_.metrics);
  snapshot_ = host(predicted_.snapshot);
  if (predicted_.communication > 0) {
    device_->allocate_communication(predicted_.communication);
    allocated_ += predicted_.communication;
  }
  LATHE_CHECK(allocated_ == predicted_.total(), "allocated {} bytes, the certificate says {}", allocated_,
              predicted_.total());

  for (auto& event : consumed_) event = device_->make_event();
  for (int i = 0; i < o.slots; ++i) moved_.push_back(device_->make_event());
  for (int i = 0; i < o.ahead; ++i) done_.push_back(device_->make_event());
  programs_.resize(done_.size());
  metrics_stride_ = read_bytes(set_, OutputKind::metric);

  const Target& target = device_->target();
  for (const Program& p : set_.programs) {
    auto bound = std::make_unique<Bound>();
    for (const Launch& l : p.launches)
      bound->kernels.push_back(l.candidate.bind(*device_, Site{l.node, l.in, l.out, target}, l.args));
    for (const Port& in : p.inputs) {
      if (is_state(in.kind) || in.type.bytes() == 0) continue;
      Bound::Upload u;
      u.slot_offset = layout_.find(in.name)->second.offset;
      u.input = in.buffer;
      u.input.bytes = in.type.bytes();
      for (int i = 0; i < 2; ++i)
        if (const auto place = slots.places[i].find(in.name); place != slots.places[i].end())
          u.device_slot[i] = {staging_segment + place->second.first, place->second.second, in.type.bytes()};
      bound->uploads.push_back(u);
    }
    int64_t metric = 0, result = o.ahead * metrics_stride_;
    for (const Port& out : p.outputs) {
      if (!is_read(out)) continue;
      const bool kept = out.output_kind == OutputKind::metric;
      int64_t& offset = kept ? metric : result;
      Buffer src = out.buffer;
      src.bytes = out.type.bytes();
      bound->reads.push_back({out.name, out.type.dtype, src, metrics_ + offset, kept ? metrics_stride_ : 0});
      offset += round_up(out.type.bytes(), kAlign);
    }
    if (Trace* trace = Trace::of_process())
      for (const Launch& l : p.launches)
        bound->labels.push_back(
            trace->label({std::string(l.candidate.name), l.node.op->is_collective() ? kCommunicationSpan : kKernelSpan,
                          l.flops(), l.cost.bytes_read + l.cost.bytes_written,
                          l.node.origin.empty() ? std::string(l.node.op->name())
                                                : fmt::format("{} {}", l.node.op->name(), l.node.origin),
                          l.lane == Lane::compute ? "" : std::string(to_string(l.lane))}));
    bound->has_lanes = p.has_lanes();
    bound->changes = changes_of(set_, p);
    bound->changes_any = std::ranges::find(bound->changes, true) != bound->changes.end();
    bound_.push_back(std::move(bound));
  }
  for (const auto& bound : bound_)
    for (const auto& kernel : bound->kernels) kernel->prepare();
  std::vector<BoundLaunches> all;
  for (size_t i = 0; i < bound_.size(); ++i)
    all.push_back({&set_.programs[i], &bound_[i]->kernels, &bound_[i]->labels, &bound_[i]->changes});
  lanes_ = make_lane_runner(*device_, std::move(all), leaving_);
  for (size_t i = 0; i < bound_.size(); ++i)
    bound_[i]->recording = device_->record(set_.programs[i].name, [&](Stream& s) { work(i, s); });
  flush_denormals();
}

Executor::~Executor() {
  try {
    synchronize();
  } catch (const Error&) {
    // A lost device has nothing under way.
  }
  lanes_.reset();  // runs kernels
  bound_.clear();  // kernels refer to the device
}

std::byte* Executor::staging(int slot, std::string_view input) const {
  const auto it = layout_.find(input);
  LATHE_CHECK(it != layout_.end(), "no Program has an input {}", input);
  return host_slots_[static_cast<size_t>(slot)] + it->second.offset;
}

void Executor::stage(size_t program, int slot) {
  if (device_->target().host_memory) return;
  Stream& transfer = device_->stream(Lane::transfer);
  // The device slot that was free for longer; at most one batch waits while another is staged.
  const int turn = holds_[next_] < 0 ? next_ : next_ ^ 1;
  LATHE_CHECK(holds_[turn] < 0, "both device slots hold batches that did not run");
  transfer.wait(*consumed_[turn]);
  for (const Bound::Upload& u : bound_[program]->uploads)
    transfer.copy_in(u.device_slot[turn], host_slots_[static_cast<size_t>(slot)] + u.slot_offset);
  transfer.record(*moved_[static_cast<size_t>(slot)]);
  holds_[turn] = slot;
  next_ = turn ^ 1;
}

// Puts the batch that was staged from the slot where the Program reads it. Batches may run in another order than they
// were staged in: an evaluation comes between a training batch and its step.
void Executor::take_inputs(size_t program, int slot) {
  Stream& compute = device_->stream(Lane::compute);
  const Bound& b = *bound_[program];
  if (device_->target().host_memory) {
    for (const Bound::Upload& u : b.uploads)
      compute.copy_in(u.input, host_slots_[static_cast<size_t>(slot)] + u.slot_offset);
    return;
  }
  LATHE_CHECK(holds_[0] == slot || holds_[1] == slot, "slot {} was not staged", slot);
  const int turn = holds_[0] == slot ? 0 : 1;
  compute.wait(*moved_[static_cast<size_t>(slot)]);
  for (const Bound::Upload& u : b.uploads) compute.copy(u.input, u.device_slot[turn]);
  compute.record(*consumed_[turn]);
  holds_[turn] = -1;
}

int64_t Executor::run(size_t program, int slot) {
  Stream& compute = device_->stream(Lane::compute);
  const Bound& b = *bound_[program];
  const size_t place = place_of(runs_);
  take_inputs(program, slot);
  if (!device_->works_at_once() && leaving_.leaves(b.changes_any)) return -1;
  if (b.recording && !is_traced())
    b.recording->launch(compute);
  else if (!work(program, compute))
    return -1;
  for (const Bound::Read& r : b.reads) compute.copy_out(r.dst + r.stride * static_cast<int64_t>(place), r.src);
  compute.record(*done_[place]);
  programs_[place] = program;
  return runs_++;
}

bool Executor::work(size_t program, Stream& compute) {
  const Bound& b = *bound_[program];
  const bool asks = device_->works_at_once();
  if (b.has_lanes) {
    if (!lanes_->run(program)) return false;
  } else {
    TracedLaunches traced(*device_, b.labels);
    for (size_t i = 0; i < b.kernels.size(); ++i) {
      if (asks && leaving_.leaves(b.changes[i])) return false;
      traced.run(*b.kernels[i], i, compute);
    }
  }
  if (asks && leaving_.leaves(b.changes.back())) return false;
  for (const FinalCopy& c : set_.programs[program].final_copies) compute.copy(c.dst, c.src);
  return true;
}

double Executor::metric(std::string_view name) {
  synchronize();
  return metric(runs_ - 1, name);
}

double Executor::metric(int64_t run, std::string_view name) const {
  LATHE_CHECK(run >= 0 && run < runs_ && run >= runs_ - static_cast<int64_t>(done_.size()),
              "the metrics of run {} are gone, {} were started", run, runs_);
  const size_t place = place_of(run);
  for (const Bound::Read& r : bound_[programs_[place]]->reads)
    if (r.name == name)
      return dispatch(r.dtype, [&](auto v) {
        std::memcpy(&v, r.dst + r.stride * static_cast<int64_t>(place), sizeof(v));
        return static_cast<double>(v);
      });
  LATHE_CHECK(false, "Program {} has no metric {}", set_.programs[programs_[place]].name, name);
  return 0;
}

std::span<const std::byte> Executor::result(std::string_view name) {
  synchronize();
  const size_t program = programs_[place_of(runs_ - 1)];
  for (const Bound::Read& r : bound_[program]->reads)
    if (r.name == name && r.stride == 0) return {r.dst, static_cast<size_t>(r.src.bytes)};
  LATHE_CHECK(false, "Program {} has no result {}", set_.programs[program].name, name);
  return {};
}

// It sleeps for about as long as it has slept already, 1 ms at most: whoever has half a queue of work in the device
// loses nothing when it is notified of room that much later, and the processor is left to others.
void Executor::pause_until(Event& event) {
  using std::chrono::microseconds;
  if (event.reached()) return;
  ++device_->counters().pauses;
  for (microseconds rest{20}; !event.reached(); rest = std::min(2 * rest, microseconds{1000}))
    std::this_thread::sleep_for(rest);
}

double Executor::lane_wait_seconds() const { return lanes_ ? lanes_->wait_seconds() : 0; }

void Executor::synchronize() { device_->stream(Lane::compute).synchronize(); }

const Port& Executor::state_port(std::string_view name) const {
  const auto it = std::ranges::find(set_.state, name, &Port::name);
  LATHE_CHECK(it != set_.state.end(), "no state {}", name);
  return *it;
}

void Executor::write_state(std::string_view name, std::span<const std::byte> bytes) {
  const Port& p = state_port(name);
  LATHE_CHECK(static_cast<int64_t>(bytes.size()) == p.type.bytes(), "{}: {} bytes given", name, bytes.size());
  write_state_part(name, 0, bytes);
}

void Executor::write_state_part(std::string_view name, int64_t offset, std::span<const std::byte> bytes) {
  const Port& p = state_port(name);
  const auto size = static_cast<int64_t>(bytes.size());
  LATHE_CHECK(offset >= 0 && size <= p.type.bytes() - offset, "{}: {} bytes given from {} on", name, size, offset);
  if (bytes.empty()) return;
  Buffer dst = p.buffer;
  dst.offset += offset;
  dst.bytes = size;
  device_->stream(Lane::compute).copy_in(dst, bytes.data());
  synchronize();
}

void Executor::read_state(std::string_view name, std::span<std::byte> bytes) {
  const Port& p = state_port(name);
  LATHE_CHECK(static_cast<int64_t>(bytes.size()) == p.type.bytes(), "{}: {} bytes asked for", name, bytes.size());
  if (bytes.empty()) return;
  Buffer src = p.buffer;
  src.bytes = p.type.bytes();
  device_->stream(Lane::compute).copy_out(bytes.data(), src);
  synchronize();
}

std::span<const std::byte> Executor::copy_state(size_t i, const Reorder& reorder) {
  Buffer src = set_.state.at(i).buffer;
  src.bytes = set_.state[i].type.bytes();
  LATHE_CHECK(snapshot_ || src.bytes == 0, "no snapshot was reserved");
  const auto bytes = static_cast<size_t>(src.bytes);
  if (bytes == 0) return {};
  device_->stream(Lane::compute).copy_out(snapshot_, src);
  synchronize();
  if (!reorder) return {snapshot_, bytes};
  std::byte* ordered = snapshot_ + predicted_.snapshot / 2;
  reorder({snapshot_, bytes}, {ordered, bytes});
  return {ordered, bytes};
}

std::vector<double> Executor::profile(size_t program, int slot) {
  Stream& compute = device_->stream(Lane::compute);
  stage(program, slot);
  const Bound& b = *bound_[program];
  std::vector<double> seconds;
  take_inputs(program, slot);
  compute.synchronize();
  for (size_t i = 0; i < b.kernels.size(); ++i) {
    Stream& stream = device_->stream(set_.programs[program].launches[i].lane);
    const Stopwatch start;
    b.kernels[i]->run(stream);
    stream.synchronize();
    seconds.push_back(start.seconds());
  }
  for (const FinalCopy& c : set_.programs[program].final_copies) compute.copy(c.dst, c.src);
  compute.synchronize();
  return seconds;
}

}  // namespace lathe
