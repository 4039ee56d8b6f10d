#include "session/session.h"

#include <algorithm>
#include <cstring>

#include "base/version.h"
#include "plan/plan.h"
#include "session/state.h"

namespace lathe {
namespace {

using Bytes = std::vector<std::byte>;

struct Prepared {
  StateTable state;
  ProgramSet set;
  DeviceName device;
};

Prepared prepare(StepSet steps, const SessionOptions& o) {
  Prepared out;
  out.device = parse_device_name(o.device == "auto" ? auto_device() : o.device);
  require_device(out.device);
  const Backend& backend = find_backend(out.device.backend);
  const Target target = backend.target({out.device.index, o.threads});
  StepSet set = run_pipeline(std::move(steps), {target, o.precision, o.options}, o.passes);
  out.state = std::move(set.state);
  out.set = plan(std::move(set.graphs), target, backend.kernels(), {.allow_fallback = false, .budget = o.budget});
  return out;
}

std::unique_ptr<Executor> open(Prepared p, const SessionOptions& o) {
  return std::make_unique<Executor>(std::move(p.set), find_backend(p.device.backend).open({p.device.index, o.threads}),
                                    o.executor);
}

// Ports of that name, of all Programs.
template <class F>
void each_input(const ProgramSet& set, std::string_view name, F&& f) {
  for (const Program& p : set.programs)
    for (const Port& in : p.inputs)
      if (!is_state(in.kind) && in.name == name) f(in);
}

std::string input_names(const ProgramSet& set) {
  std::vector<std::string> names;
  for (const Program& p : set.programs)
    for (const Port& in : p.inputs)
      if (!is_state(in.kind) && std::ranges::find(names, in.name) == names.end()) names.push_back(in.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Session::Session(StepSet steps, const SessionOptions& o) {
  Prepared p = prepare(std::move(steps), o);
  state_ = p.state;
  executor_ = open(std::move(p), o);
  initialize(o.seed);
}

Session::Session(StateTable state, ProgramSet set, std::unique_ptr<Device> device, const ExecutorOptions& o)
    : state_(std::move(state)), executor_(std::make_unique<Executor>(std::move(set), std::move(device), o)) {}

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
  LATHE_USER_CHECK(known, "input \"{}\": expected one of {}", input, input_names(executor_->set()));
  LATHE_USER_CHECK(fits, "input \"{}\": expected {}, got {} bytes", input, fmt::join(types, " or "), bytes.size());
  wait();
  std::memcpy(executor_->staging(0, input), bytes.data(), bytes.size());
  fed_[std::string(input)] = static_cast<int64_t>(bytes.size());
}

void Session::feed(std::string_view input, double value) {
  TensorType type;
  bool known = false;
  each_input(executor_->set(), input, [&](const Port& p) {
    type = p.type;
    known = true;
  });
  LATHE_USER_CHECK(known, "input \"{}\": expected one of {}", input, input_names(executor_->set()));
  LATHE_USER_CHECK(type.numel() == 1, "input \"{}\": expected {}, got one number", input, to_string(type));
  switch (type.dtype) {
    case DType::f32: return feed(input, std::vector{static_cast<float>(value)});
    case DType::f64: return feed(input, std::vector{value});
    case DType::i32: return feed(input, std::vector{static_cast<int32_t>(value)});
    case DType::i64: return feed(input, std::vector{static_cast<int64_t>(value)});
    case DType::u8: return feed(input, std::vector{static_cast<uint8_t>(value)});
    default: throw UserError(fmt::format("input \"{}\": {} cannot be fed as a number", input, to_string(type)));
  }
}

bool Session::has(std::string_view graph) const { return executor_->set().find(graph) != nullptr; }

void Session::run(std::string_view graph) {
  const ProgramSet& set = executor_->set();
  const Program* p = set.find(graph);
  if (!p) {
    std::vector<std::string> names;
    for (const Program& each : set.programs) names.push_back(each.name);
    throw UserError(fmt::format("run \"{}\": expected one of {}", graph, fmt::join(names, ", ")));
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
}

double Session::metric(std::string_view name) {
  wait();
  return executor_->metric(name);
}

std::vector<float> Session::result(std::string_view name) {
  wait();
  const std::span<const std::byte> bytes = executor_->result(name);
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

void Session::initialize(int64_t seed) {
  wait();
  initialize_state(*executor_, state_, seed);
}

std::vector<float> Session::read(std::string_view name) {
  const StateSpec* s = state_.find(name);
  LATHE_USER_CHECK(s, "state \"{}\": there is none of that name", name);
  LATHE_USER_CHECK(s->type.dtype == DType::f32, "state \"{}\": expected f32, it is {}", name, to_string(s->type));
  wait();
  std::vector<float> out(static_cast<size_t>(s->type.numel()));
  executor_->read_state(name, std::as_writable_bytes(std::span(out)));
  return out;
}

void Session::write(std::string_view name, std::span<const float> values) {
  const StateSpec* s = state_.find(name);
  LATHE_USER_CHECK(s, "state \"{}\": there is none of that name", name);
  LATHE_USER_CHECK(
      s->type == (TensorType{DType::f32, s->type.shape}) && static_cast<int64_t>(values.size()) == s->type.numel(),
      "state \"{}\": expected {}, got {} numbers", name, to_string(s->type), values.size());
  wait();
  executor_->write_state(name, std::as_bytes(values));
}

std::vector<io::CheckpointFile> Session::files(Keep keep) {
  wait();
  return state_files(*executor_, state_, keep);
}

std::string Session::save(const std::string& dir, int64_t step, const std::map<std::string, std::string>& info) {
  io::PosixFs fs;
  io::make_dirs(fs, dir);
  io::Manifest about;
  about.step = step;
  about.software = fmt::format("lathe {}", kVersion);
  about.info = info;
  return io::publish_checkpoint(fs, dir, "session", about, files());
}

int64_t Session::load(const std::string& dir, std::map<std::string, std::string>* info) {
  io::PosixFs fs;
  io::Notes notes;
  const auto found = io::find_newest_valid(fs, dir, io::Verify::full, notes);
  if (!found) return -1;
  load_files(found->path);
  if (info) *info = found->manifest.info;
  return found->manifest.step;
}

void Session::load_files(const std::string& checkpoint, Keep keep) {
  io::PosixFs fs;
  wait();
  load_state(*executor_, state_, fs, checkpoint, keep);
}

Replanned Session::replan(StepSet steps, const SessionOptions& o) {
  Prepared p = prepare(std::move(steps), o);  // what can fail without memory comes first
  wait();
  Replanned out;
  std::vector<std::pair<std::string, Bytes>> kept;
  for (const StateSpec& s : state_) {
    const StateSpec* now = p.state.find(s.name);
    if (!now) out.dropped.push_back(s.name);
    if (!now || now->type != s.type) continue;
    Bytes bytes(static_cast<size_t>(s.type.bytes()));
    executor_->read_state(s.name, bytes);
    kept.emplace_back(s.name, std::move(bytes));
    out.carried.push_back(s.name);
  }
  for (const StateSpec& s : p.state)
    if (const StateSpec* before = state_.find(s.name); !before || before->type != s.type) out.fresh.push_back(s.name);
  StateTable state = p.state;
  executor_ = open(std::move(p), o);
  state_ = std::move(state);
  fed_.clear();
  initialize(o.seed);
  for (const auto& [name, bytes] : kept) executor_->write_state(name, bytes);
  return out;
}

}  // namespace lathe
