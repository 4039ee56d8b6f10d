#include "session/session.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/host_device.h"
#include "base/did_you_mean.h"
#include "base/version.h"
#include "base/warning.h"
#include "comm/collectives.h"
#include "passes/bucket.h"
#include "passes/partition/vote.h"
#include "passes/techniques/gate.h"
#include "plan/plan.h"
#include "session/publish.h"
#include "session/state.h"
#include "session/state_parts.h"

namespace lathe {
namespace {

using Bytes = std::vector<std::byte>;

struct Prepared {
  StateTable state;
  ProgramSet set;
  DeviceName device;
};

Prepared prepare(StepSet steps, const SessionOptions& o) {
  constexpr int kMostThreads = 1024;  // as recipes
  LATHE_USER_CHECK(o.threads >= 0 && o.threads <= kMostThreads, "threads: expected 0 to {}, got {}", kMostThreads,
                   o.threads);
  LATHE_USER_CHECK(!steps.graphs.empty(), "expected a step set with a graph, got one without");
  LATHE_USER_CHECK(o.budget >= 0, "budget: expected 0 (no limit) or bytes, got {}", o.budget);
  LATHE_USER_CHECK(o.executor.slots >= 1, "executor.slots: expected at least 1, got {}", o.executor.slots);
  LATHE_USER_CHECK(o.executor.ahead >= 1, "executor.ahead: expected at least 1, got {}", o.executor.ahead);
  Prepared out;
  out.device = parse_device_name(o.device == "auto" ? auto_device() : o.device);
  require_device(out.device);
  const Backend& backend = find_backend(out.device.backend);
  const Target target = backend.target({out.device.index, o.threads, o.group});
  PassContext context{target, o.options};
  if (o.group) context.mesh = {o.group->size(), o.group->rank()};
  if (!context.options.has<GateOptions>()) context.options.set(GateOptions{.update = "after_all"});
  StepSet set = run_pipeline(std::move(steps), context, o.passes);
  out.state = std::move(set.state);
  const int64_t in_flight = context.options.get<BucketOptions>().in_flight.bytes;
  out.set = plan(std::move(set.graphs), target, backend.kernels(),
                 {.allow_fallback = false, .budget = o.budget, .in_flight = in_flight});
  return out;
}

std::unique_ptr<Executor> open(Prepared p, const SessionOptions& o) {
  ExecutorOptions options = o.executor;
  options.largest_whole = largest_whole(p.state);
  return std::make_unique<Executor>(std::move(p.set),
                                    find_backend(p.device.backend).open({p.device.index, o.threads, o.group}), options);
}

// Ports of that name, of all Programs.
template <class F>
void each_input(const ProgramSet& set, std::string_view name, F&& f) {
  for (const Program& p : set.programs)
    for (const Port& in : p.inputs)
      if (!is_state(in.kind) && in.name == name) f(in);
}

std::optional<DType> dtype_of_input(const ProgramSet& set, std::string_view name) {
  std::optional<DType> out;
  each_input(set, name, [&](const Port& p) { out = p.type.dtype; });
  return out;
}

// For messages about a name that is none of them.
std::string expected_names(std::string_view got, const std::vector<std::string_view>& names) {
  const auto near = did_you_mean(got, names);
  return fmt::format("expected one of {}{}", fmt::join(names, ", "),
                     near ? fmt::format("; did you mean \"{}\"?", *near) : "");
}

std::string expected_inputs(std::string_view got, const ProgramSet& set) {
  std::vector<std::string_view> names;
  for (const Program& p : set.programs)
    for (const Port& in : p.inputs)
      if (!is_state(in.kind) && std::ranges::find(names, in.name) == names.end()) names.push_back(in.name);
  return expected_names(got, names);
}

}  // namespace

Session::Session(StepSet steps, const SessionOptions& o) {
  Prepared p = prepare(std::move(steps), o);
  state_ = p.state;
  executor_ = open(std::move(p), o);
  has_snapshot_ = o.executor.snapshot;
  initialize(o.seed);
  join_ranks(o);
}

void Session::join_ranks(const SessionOptions& o) {
  ranks_ = o.group ? &host_device(executor_->device()).collectives() : nullptr;
  if (!o.group) return;
  if (dtype_of_input(executor_->set(), "rank")) feed("rank", o.group->rank());
  if (dtype_of_input(executor_->set(), kVote)) feed(kVote, 0.0);
}

Session::Session(StateTable state, ProgramSet set, std::unique_ptr<Device> device, const ExecutorOptions& o)
    : state_(std::move(state)),
      executor_(std::make_unique<Executor>(std::move(set), std::move(device), o)),
      has_snapshot_(o.snapshot) {}

Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

void Session::wait() {
  if (running_) executor_->synchronize();
  running_ = false;
}

void Session::check_type(std::string_view input, DType type) const {
  each_input(executor_->set(), input, [&](const Port& p) {
    LATHE_USER_CHECK(p.type.dtype == type, "input \"{}\": expected {}, got elements of {}", input, to_string(p.type),
                     to_string(type));
  });
}

void Session::feed(std::string_view input, std::span<const std::byte> bytes) {
  bool known = false, fits = false;
  std::vector<std::string> types;
  each_input(executor_->set(), input, [&](const Port& p) {
    known = true;
    fits = fits || p.type.bytes() == static_cast<int64_t>(bytes.size());
    if (std::string t = to_string(p.type); std::ranges::find(types, t) == types.end()) types.push_back(std::move(t));
  });
  LATHE_USER_CHECK(known, "input \"{}\": {}", input, expected_inputs(input, executor_->set()));
  LATHE_USER_CHECK(fits, "input \"{}\": expected {}, got {} bytes", input, fmt::join(types, " or "), bytes.size());
  wait();
  if (!bytes.empty()) std::memcpy(executor_->staging(0, input), bytes.data(), bytes.size());
  fed_[std::string(input)] = static_cast<int64_t>(bytes.size());
}

void Session::feed(std::string_view input, double value) {
  std::optional<TensorType> type;  // that of a graph which takes one number, if there is one
  each_input(executor_->set(), input, [&](const Port& p) {
    if (!type || p.type.numel() == 1) type = p.type;
  });
  LATHE_USER_CHECK(type, "input \"{}\": {}", input, expected_inputs(input, executor_->set()));
  LATHE_USER_CHECK(type->numel() == 1, "input \"{}\": expected {}, got one number", input, to_string(*type));
  if (!is_float(type->dtype)) {
    const double bits = 8.0 * static_cast<double>(size_of(type->dtype));
    const double least = type->dtype == DType::u8 ? 0 : -std::exp2(bits - 1);
    const double above = type->dtype == DType::u8 ? 256 : std::exp2(bits - 1);
    LATHE_USER_CHECK(value >= least && value < above && value == std::trunc(value), "input \"{}\": expected {}, got {}",
                     input, to_string(*type), value);
  }
  switch (type->dtype) {
    case DType::f32: return feed(input, std::vector{static_cast<float>(value)});
    case DType::f64: return feed(input, std::vector{value});
    case DType::i32: return feed(input, std::vector{static_cast<int32_t>(value)});
    case DType::i64: return feed(input, std::vector{static_cast<int64_t>(value)});
    case DType::u8: return feed(input, std::vector{static_cast<uint8_t>(value)});
    default: throw UserError(fmt::format("input \"{}\": {} cannot be fed as a number", input, to_string(*type)));
  }
}

bool Session::has(std::string_view graph) const { return executor_->set().find(graph) != nullptr; }

void Session::run(std::string_view graph) {
  const ProgramSet& set = executor_->set();
  const Program* p = set.find(graph);
  if (!p) {
    std::vector<std::string_view> names;
    for (const Program& each : set.programs) names.push_back(each.name);
    throw UserError(fmt::format("run \"{}\": {}", graph, expected_names(graph, names)));
  }
  for (const Port& in : p->inputs) {
    if (is_state(in.kind)) continue;
    const auto fed = fed_.find(in.name);
    LATHE_USER_CHECK(fed != fed_.end(), "run \"{}\": input \"{}\" ({}) was never fed", graph, in.name,
                     to_string(in.type));
    LATHE_USER_CHECK(fed->second == in.type.bytes(), "run \"{}\": input \"{}\" is {}, was fed {} bytes", graph, in.name,
                     to_string(in.type), fed->second);
  }
  wait();
  const auto at = static_cast<size_t>(p - set.programs.data());
  executor_->stage(at, 0);
  executor_->run(at, 0);
  running_ = true;
  last_ = at;
}

const Port& Session::port(OutputKind kind, std::string_view name, std::optional<DType> dtype) {
  LATHE_USER_CHECK(last_, "{} \"{}\": nothing was run yet", to_string(kind), name);
  std::vector<std::string_view> names;
  const Program& program = executor_->set().programs[*last_];
  for (const Port& p : program.outputs) {
    if (p.output_kind != kind) continue;
    names.push_back(p.name);
    if (p.name != name) continue;
    LATHE_USER_CHECK(!dtype || p.type.dtype == *dtype, "{} \"{}\": expected {}, got elements of {}", to_string(kind),
                     name, to_string(p.type), to_string(*dtype));
    wait();
    return p;
  }
  throw UserError(
      fmt::format("{} \"{}\": {} (graph \"{}\")", to_string(kind), name, expected_names(name, names), program.name));
}

double Session::metric(std::string_view name) {
  const Port& p = port(OutputKind::metric, name, std::nullopt);
  LATHE_USER_CHECK(p.type.numel() == 1, "metric \"{}\": expected one number, it is {}", name, to_string(p.type));
  return executor_->metric(name);
}

void Session::read_result(std::string_view name, std::span<std::byte> out) {
  const std::span<const std::byte> bytes = executor_->result(name);
  std::ranges::copy(bytes, out.begin());
}

void Session::initialize(int64_t seed) {
  wait();
  initialize_state(*executor_, state_, seed);
}

const StateSpec& Session::row(std::string_view name, DType dtype) const {
  const StateSpec* s = state_.find(name);
  if (!s) {
    std::vector<std::string_view> names;
    for (const StateSpec& row : state_) names.push_back(row.name);
    const auto near = did_you_mean(name, names);
    throw UserError(fmt::format("state \"{}\": there is none of that name{}", name,
                                near ? fmt::format("; did you mean \"{}\"?", *near) : ""));
  }
  LATHE_USER_CHECK(s->type.dtype == dtype, "state \"{}\": expected {}, got elements of {}", name, to_string(s->type),
                   to_string(dtype));
  return *s;
}

void Session::read_state(const StateSpec& s, std::span<std::byte> out) {
  wait();
  std::vector<std::byte> room(s.part.is_part() ? out.size() : 0);
  read_whole_state(*executor_, s, out, room);
}

void Session::write_state(const StateSpec& s, std::span<const std::byte> bytes, size_t numbers) {
  const TensorType type = s.whole_type();
  LATHE_USER_CHECK(static_cast<int64_t>(numbers) == type.numel(), "state \"{}\": expected {}, got {} numbers", s.name,
                   to_string(type), numbers);
  wait();
  std::vector<std::byte> room(s.part.is_part() ? bytes.size() : 0);
  write_whole_state(*executor_, s, bytes, room);
}

std::vector<io::CheckpointFile> Session::files(Keep keep) {
  LATHE_USER_CHECK(has_snapshot_, "a session without executor.snapshot has nothing to save from");
  wait();
  return state_files(*executor_, state_, keep);
}

std::string Session::save(const std::string& dir, int64_t step, const std::map<std::string, std::string>& info) {
  constexpr int64_t kMost = 999'999'999'999'999'999;  // digits in the name of a directory
  LATHE_USER_CHECK(step >= 0 && step <= kMost, "step: expected 0 to {}, got {}", kMost, step);
  const std::vector<io::CheckpointFile> all = files();
  io::PosixFs fs;
  const auto about = [&] {
    io::make_dirs(fs, dir);
    io::Notes notes;
    io::clean_leftovers(fs, dir, notes);  // of saves that were killed
    for (const std::string& note : notes) warn(note);
    io::Manifest m;
    m.step = step;
    m.software = fmt::format("lathe {}", kVersion);
    m.info = info;
    return m;
  };
  return publish_checkpoint(ranks_ ? &ranks_->group() : nullptr, fs, dir, "session", about, all);
}

int64_t Session::load(const std::string& dir, std::map<std::string, std::string>* info) {
  io::PosixFs fs;
  io::Notes notes;
  const auto found = io::find_newest_valid(fs, dir, io::Verify::full, notes);
  if (!found) {
    LATHE_USER_CHECK(notes.empty(), "{}", fmt::join(notes, "\n"));
    return -1;
  }
  for (const std::string& note : notes) warn(note);
  load_files(found->path, io::Verify::full, Keep::all);
  if (info) *info = found->manifest.info;
  return found->manifest.step;
}

void Session::load_files(const std::string& checkpoint, Keep keep) { load_files(checkpoint, io::Verify::size, keep); }

void Session::load_files(const std::string& checkpoint, io::Verify verified, Keep keep) {
  io::PosixFs fs;
  wait();
  load_state(*executor_, state_, fs, checkpoint, verified, keep);
}

Replanned Session::replan(StepSet steps, const SessionOptions& o) {
  Prepared p = prepare(std::move(steps), o);  // what can fail without memory comes first
  wait();
  StateTable state = p.state;
  std::unique_ptr<Executor> executor = open(std::move(p), o);
  initialize_state(*executor, state, o.seed);
  Replanned out;
  const auto is_carried = [&](const StateSpec& s) {
    const StateSpec* before = state_.find(s.name);
    return before && before->whole_type() == s.whole_type();
  };
  Bytes bytes, room;
  for (const StateSpec& s : state) {
    const StateSpec& source = is_carried(s) ? s : first_value_of(s, state);
    (is_carried(s) ? out.carried : out.fresh).push_back(s.name);
    if (!is_carried(source)) continue;
    bytes.resize(static_cast<size_t>(s.whole_type().bytes()));
    room.resize(bytes.size());
    read_whole_state(*executor_, *state_.find(source.name), bytes, room);
    write_whole_state(*executor, s, bytes, room);
  }
  for (const StateSpec& s : state_)
    if (!state.find(s.name)) out.dropped.push_back(s.name);
  std::unordered_map<std::string, int64_t> fed;
  for (const auto& [name, bytes_fed] : fed_) {
    const int64_t size = bytes_fed;  // a lambda of clang 14 captures no structured binding
    const std::optional<DType> before = dtype_of_input(executor_->set(), name);
    bool fits = false;
    each_input(executor->set(), name,
               [&](const Port& in) { fits = fits || (in.type.bytes() == size && in.type.dtype == before); });
    if (!fits) continue;
    std::memcpy(executor->staging(0, name), executor_->staging(0, name), static_cast<size_t>(size));
    fed.emplace(name, size);
  }
  executor_ = std::move(executor);
  has_snapshot_ = o.executor.snapshot;
  state_ = std::move(state);
  fed_ = std::move(fed);
  join_ranks(o);
  last_.reset();
  return out;
}

}  // namespace lathe
