#include "run/conformance.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/philox.h"
#include "ir/builder.h"
#include "ops/registry.h"
#include "plan/plan.h"
#include "run/run_graph.h"

namespace lathe {
namespace {

struct Tolerance {
  DType dtype;
  ErrorClass error_class;
  double value;
};
// OpenCL grants its elementary functions up to 16 units in the last place (2e-6 in f32).
constexpr Tolerance kTolerances[] = {
    {DType::f32, ErrorClass::exact, 0},
    {DType::f32, ErrorClass::elementwise, 5e-6},
    {DType::f32, ErrorClass::sum, 2e-5},
    {DType::f64, ErrorClass::exact, 0},
    {DType::f64, ErrorClass::elementwise, 1e-13},
    {DType::f64, ErrorClass::sum, 1e-12},
    // One unit in the last place: where the f32 before the rounding lies next to a middle, its error decides.
    {DType::f16, ErrorClass::exact, 0},
    {DType::f16, ErrorClass::elementwise, 1e-3},
    {DType::f16, ErrorClass::sum, 1e-3},
    {DType::bf16, ErrorClass::exact, 0},
    {DType::bf16, ErrorClass::elementwise, 8e-3},
    {DType::bf16, ErrorClass::sum, 8e-3},
};

// Few values lie next to a middle, so almost all of a 16-bit result is exact. Where the mean error is a larger part of
// the allowed one, a rounding is missing, or done by cutting, or once too often.
constexpr double kMeanShare = 0.05;
// Attention multiplies twice, and matrix units take operands of 16 bits: kernels may round the probabilities between.
constexpr double kRoundedWithin = 4;
constexpr size_t kMeanCount = 32;  // elements from which on the mean says something

// Below it a result is what is left of a cancellation, and has no relative precision.
constexpr double kSmallestScale = 1e-2;

double error_of(const HostTensor& actual, const HostTensor& expected) {
  const double error = relative_error(actual, expected);
  double scale = 1e-6;  // the smallest one that relative_error divides by
  for (double x : expected.data)
    if (std::isfinite(x)) scale = std::max(scale, std::abs(x));
  return error * std::min(1.0, scale / kSmallestScale);
}

// Mean difference, relative as in error_of.
double mean_error_of(const HostTensor& actual, const HostTensor& expected) {
  double scale = kSmallestScale, sum = 0;
  for (size_t i = 0; i < expected.data.size(); ++i) {
    if (!std::isfinite(expected.data[i])) continue;
    scale = std::max(scale, std::abs(expected.data[i]));
    sum += std::abs(actual.data[i] - expected.data[i]);
  }
  return sum / scale / static_cast<double>(std::max<size_t>(1, expected.data.size()));
}

// What a sample of a float op becomes in another float type; nullopt where there is nothing to change.
std::optional<Sample> in_type(const Sample& s, DType t) {
  Sample out = s;
  bool changed = false;
  for (SampleInput& in : out.inputs)
    if (in.type.dtype == DType::f32) {
      in.type.dtype = t;
      changed = true;
    }
  if (!changed) return std::nullopt;
  return out;
}

// The same numbers for the same sample on every device.
HostTensor random_tensor(const SampleInput& in, uint32_t stream) {
  const CounterRng rng(0x5EED, stream, 0, 0);
  HostTensor t{in.type, std::vector<double>(static_cast<size_t>(in.type.numel()))};
  for (size_t i = 0; i < t.data.size(); ++i) {
    const double u = static_cast<double>(rng.uniform(i));
    if (!is_float(in.type.dtype)) {
      t.data[i] = std::min(std::floor(in.lo + u * (in.hi - in.lo + 1)), in.hi);
      continue;
    }
    double x = in.lo + u * (in.hi - in.lo);
    if (std::abs(x) < in.gap) x = x < 0 && -in.gap >= in.lo ? -in.gap : in.gap;
    t.data[i] = round_to(in.type.dtype, x);
  }
  return t;
}

// One sample through one kernel.
struct Case {
  size_t op;          // of the report
  std::string label;  // "sample f32"
  std::string kernel;
  ErrorClass error_class;
  Graph graph;
  std::vector<HostTensor> inputs;
  ProgramSet set;
  std::unique_ptr<BoundProgram> program;
  std::string bind_error;
};

class Suite {
 public:
  Suite(const Backend& backend, const DeviceOptions& options, std::string_view filter)
      : backend_(backend), device_(backend.open(options)) {
    report_.device = device_->target().name;
    for (const OpDef* op : registry().all()) {
      if (!op->runs_alone() || op->name().find(filter) == std::string_view::npos) continue;
      report_.ops.push_back({.op = std::string(op->name()), .kernels = {}, .failures = {}, .declines = {}});
      prepare_op(*op);
    }
    allocate();
    // All are bound before one runs: devices that compile kernels then compile them together.
    for (Case& c : cases_) bind(c);
    for (Case& c : cases_) run(c);
  }

  ConformanceReport finish() { return std::move(report_); }

 private:
  bool has(DType t) const { return std::ranges::find(device_->target().dtypes, t) != device_->target().dtypes.end(); }

  void prepare_op(const OpDef& op) {
    uint32_t number = 0;
    int narrow = 0;
    for (const Sample& s : op.samples()) {
      const std::string label = s.label.empty() ? fmt::format("#{}", number) : s.label;
      prepare(op, s, label, number, true);
      const auto prepare_in = [&](DType t) {
        if (const auto other = in_type(s, t); other && has(t))
          prepare(op, *other, fmt::format("{} in {}", label, to_string(t)), number, false);
      };
      prepare_in(DType::f64);
      // Some samples that have something to round, by turns: each costs a kernel to compile on a device that compiles.
      int64_t largest = 0;
      for (const SampleInput& in : s.inputs) largest = std::max(largest, in.type.numel());
      if (largest >= static_cast<int64_t>(kMeanCount) &&
          narrow < (device_->target().host_memory ? kNarrowSamples : kNarrowCompiled))
        prepare_in(narrow++ % 2 == 0 ? DType::f16 : DType::bf16);
      ++number;
    }
  }

  void prepare(const OpDef& op, const Sample& s, const std::string& label, uint32_t number, bool own_type) {
    Builder b(std::string(op.name()));
    Values args;
    std::vector<HostTensor> inputs;
    for (size_t i = 0; i < s.inputs.size(); ++i) {
      args.push_back(b.input(s.inputs[i].type, InputKind::batch, "x" + std::to_string(i)));
      inputs.push_back(random_tensor(s.inputs[i], number * 16 + static_cast<uint32_t>(i)));
    }
    Values out;
    try {
      out = b.add(op, args, s.params);
    } catch (const UserError&) {
      if (own_type) throw;
      return;  // parameters that name a dtype do not fit the sample in another type: there is no such case
    }
    for (size_t i = 0; i < out.size(); ++i) b.output(out[i], OutputKind::result, "y" + std::to_string(i));
    const Graph g = b.finish();
    if (op.has(kView)) {
      add(op, g, inputs, label, "view", backend_.kernels());
      return;
    }
    // Each kernel that accepts runs, also those that the plan would not take because a better one stands before them.
    const auto rows = backend_.kernels().candidates(op.name());
    bool any = false;
    std::string reasons;
    for (size_t k = 0; k < rows.size(); ++k) {
      const Site site{g.nodes[0], g.types_of(g.nodes[0].inputs), g.types_of(g.nodes[0].outputs), device_->target()};
      const std::string reason = rows[k].candidate.accepts(site);
      if (reason.empty()) {
        add(op, g, inputs, label, std::string(rows[k].candidate.name), KernelTable({rows[k]}));
        any = true;
      } else {
        reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", rows[k].candidate.name, reason);
      }
    }
    if (any) return;
    if (op.is_composite()) {
      add(op, g, inputs, label, "expanded", backend_.kernels());
      return;
    }
    decline(label, reasons.empty() ? "no kernel for this op" : reasons);
  }

  void decline(const std::string& label, const std::string& reason) {
    OpConformance& op = report_.ops.back();
    ++op.declined;
    auto at = std::ranges::find(op.declines, reason, &OpConformance::Decline::reason);
    if (at == op.declines.end()) at = op.declines.insert(at, {reason, {}});
    at->samples.push_back(label);
  }

  void add(const OpDef& op, const Graph& g, const std::vector<HostTensor>& inputs, const std::string& label,
           std::string kernel, const KernelTable& table) {
    ProgramSet set;
    try {
      set = plan({g}, device_->target(), table);
    } catch (const UserError& e) {
      decline(label, e.what());
      return;
    }
    auto& names = report_.ops.back().kernels;
    if (std::ranges::find(names, kernel) == names.end()) names.push_back(kernel);
    cases_.push_back(
        {report_.ops.size() - 1, label, std::move(kernel), error_class(op), g, inputs, std::move(set), nullptr, ""});
  }

  // One arena for all cases: each has its places from the start of it.
  void allocate() {
    std::vector<int64_t> segments;
    for (const Case& c : cases_)
      for (size_t i = 0; i < c.set.segments.size(); ++i) {
        if (segments.size() <= i) segments.push_back(0);
        segments[i] = std::max(segments[i], c.set.segments[i]);
      }
    device_->allocate(segments);
  }

  void bind(Case& c) {
    try {
      c.program = std::make_unique<BoundProgram>(*device_, c.set.programs[0]);
    } catch (const Error& e) {
      c.bind_error = e.what();
    }
  }

  void run(Case& c) {
    OpConformance& op = report_.ops[c.op];
    const auto fail = [&](const std::string& why) {
      ++op.failed;
      op.failures.push_back(fmt::format("{}, {}: {}", c.label, c.kernel, why));
    };
    if (!c.program) return fail(c.bind_error);
    try {
      const std::vector<HostTensor> expected = interpret(c.graph, c.inputs, Precision::rounded);
      fill_arena(c.set);
      const std::vector<HostTensor> actual = c.program->run(c.inputs);
      c.program.reset();
      for (size_t i = 0; i < expected.size(); ++i) {
        const double error = error_of(actual[i], expected[i]);
        op.max_error = std::max(op.max_error, error);
        const bool within = is_16bit(expected[i].type.dtype) && op.op.starts_with("attention");
        const double allowed = tolerance(expected[i].type.dtype, c.error_class) * (within ? kRoundedWithin : 1);
        if (!(error <= allowed))
          return fail(fmt::format("output {} has relative error {:.3g}, {:.3g} is allowed", i, error, allowed));
        if (!is_16bit(expected[i].type.dtype) || expected[i].data.size() < kMeanCount) continue;
        if (const double mean = mean_error_of(actual[i], expected[i]); mean > kMeanShare * allowed)
          return fail(fmt::format("output {} has mean error {:.3g}: not rounded once to {}", i, mean,
                                  to_string(expected[i].type.dtype)));
      }
      if (const std::string damage = check_arena(c); !damage.empty()) return fail(damage);
      ++op.passed;
    } catch (const Error& e) {
      c.program.reset();
      fail(e.what());
    }
  }

  static constexpr int kNarrowSamples = 4, kNarrowCompiled = 2;  // of an op, in 16-bit types
  static constexpr std::byte kPattern{0xFF};                     // NaN in every float type

  void fill_arena(const ProgramSet& set) {
    Stream& stream = device_->stream(Lane::compute);
    for (size_t s = 0; s < set.segments.size(); ++s) {
      const std::vector<std::byte> pattern(static_cast<size_t>(set.segments[s]), kPattern);
      stream.copy_in({static_cast<int32_t>(s), 0, set.segments[s]}, pattern.data());
      stream.synchronize();
    }
  }

  // Inputs must be unchanged, and what belongs to nobody still hold the pattern.
  std::string check_arena(const Case& c) {
    Stream& stream = device_->stream(Lane::compute);
    std::vector<std::vector<std::byte>> arena;
    for (size_t s = 0; s < c.set.segments.size(); ++s) {
      arena.emplace_back(static_cast<size_t>(c.set.segments[s]));
      stream.copy_out(arena.back().data(), {static_cast<int32_t>(s), 0, c.set.segments[s]});
      stream.synchronize();
    }
    const auto bytes = [&](const Buffer& b) {
      return std::span(arena[static_cast<size_t>(b.segment)])
          .subspan(static_cast<size_t>(b.offset), static_cast<size_t>(b.bytes));
    };
    const Program& p = c.set.programs[0];
    for (size_t i = 0; i < p.inputs.size(); ++i) {
      const auto now = bytes(p.inputs[i].buffer);
      const auto before = to_bytes(c.inputs[i]);
      if (!std::ranges::equal(now, before)) return fmt::format("input {} was overwritten", i);
      std::ranges::fill(now, kPattern);
    }
    for (const Launch& l : p.launches) {
      for (const Buffer& b : l.args.out) std::ranges::fill(bytes(b), kPattern);
      std::ranges::fill(bytes(l.args.workspace), kPattern);
    }
    for (const auto& segment : arena)
      if (const auto at = std::ranges::find_if(segment, [](std::byte x) { return x != kPattern; }); at != segment.end())
        return fmt::format("memory beside the result was overwritten, at byte {} of the arena", at - segment.begin());
    return "";
  }

  const Backend& backend_;
  std::unique_ptr<Device> device_;
  ConformanceReport report_;
  std::vector<Case> cases_;
};

int sum(const ConformanceReport& r, int OpConformance::*member) {
  int total = 0;
  for (const OpConformance& op : r.ops) total += op.*member;
  return total;
}

}  // namespace

int ConformanceReport::passed() const { return sum(*this, &OpConformance::passed); }
int ConformanceReport::failed() const { return sum(*this, &OpConformance::failed); }
int ConformanceReport::declined() const { return sum(*this, &OpConformance::declined); }

ErrorClass error_class(const OpDef& op) {
  if (op.has(kElementwise)) return ErrorClass::elementwise;
  return op.has(kView) || op.has(kExact) ? ErrorClass::exact : ErrorClass::sum;
}

double tolerance(DType t, ErrorClass c) {
  for (const Tolerance& row : kTolerances)
    if (row.dtype == t && row.error_class == c) return row.value;
  return 0;  // integers and booleans are exact
}

ConformanceReport run_conformance(const Backend& backend, const DeviceOptions& options, std::string_view filter) {
  return Suite(backend, options, filter).finish();
}

std::string to_text(const ConformanceReport& r) {
  size_t name = 2;
  for (const OpConformance& op : r.ops) name = std::max(name, op.op.size());
  std::string out = fmt::format(
      "{}: {} cases passed, {} failed, {} declined\n{:<{}}  {:>6}  {:>6}  {:>8}  {:>9}  kernels\n", r.device,
      r.passed(), r.failed(), r.declined(), "op", name, "passed", "failed", "declined", "max error");
  for (const OpConformance& op : r.ops)
    out += fmt::format("{:<{}}  {:>6}  {:>6}  {:>8}  {:>9.2g}  {}\n", op.op, name, op.passed, op.failed, op.declined,
                       op.max_error, fmt::join(op.kernels, ", "));
  for (const OpConformance& op : r.ops) {
    for (const std::string& f : op.failures) out += fmt::format("FAILED {} {}\n", op.op, f);
    for (const auto& d : op.declines)
      out += fmt::format("declined {} ({} samples, {}{}): {}\n", op.op, d.samples.size(), d.samples.front(),
                         d.samples.size() > 1 ? ", ..." : "", d.reason);
  }
  return out;
}

}  // namespace lathe
