#include "bench/bench_op.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <numeric>

#include "ops/sample.h"
#include "passes/pass.h"
#include "plan/plan.h"
#include "session/session.h"

namespace lathe {
namespace {

// Random numbers of the sample's range, repeated: large inputs are filled at memory speed. The period is no multiple of
// any row length in use.
constexpr int64_t kPeriod = 65521;

void fill(const SampleInput& in, std::byte* at, int64_t numel) {
  Sample s{"", {in}, nullptr};
  s.inputs[0].type.shape = Shape{std::min(numel, kPeriod)};
  const HostTensor values = sample_inputs(s, 1)[0];
  dispatch(in.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* out = reinterpret_cast<T*>(at);
    const auto n = static_cast<int64_t>(values.data.size());
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(values.data[static_cast<size_t>(i)]);
    for (int64_t done = n; done < numel; done += n)
      std::memcpy(out + done, out, static_cast<size_t>(std::min(n, numel - done)) * sizeof(T));
  });
}

}  // namespace

Timing summarize(std::vector<double> seconds) {
  LATHE_CHECK(!seconds.empty());
  std::ranges::sort(seconds);
  const auto at = [&](double q) {
    const double place = q * static_cast<double>(seconds.size() - 1);
    const auto i = static_cast<size_t>(place);
    const double rest = place - static_cast<double>(i);
    return i + 1 < seconds.size() ? seconds[i] * (1 - rest) + seconds[i + 1] * rest : seconds[i];
  };
  return {at(0.5), at(0.25), at(0.75)};
}

Shape parse_bench_shape(const std::string& text) {
  Ints dims;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int64_t d = 0;
    const auto [next, error] = std::from_chars(at, end, d);
    LATHE_USER_CHECK(error == std::errc() && d > 0, "--shapes: expected sizes joined by x, such as 64x1024, got \"{}\"",
                     text);
    dims.push_back(d);
    if (next == end) return Shape(dims);
    LATHE_USER_CHECK(*next == 'x', "--shapes: expected sizes joined by x, such as 64x1024, got \"{}\"", text);
    at = next + 1;
  }
}

Sample bench_case_of(const OpDef& op, const std::string& text) {
  std::vector<Shape> shapes;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    shapes.push_back(parse_bench_shape(text.substr(at, comma - at)));
    at = comma + 1;
  }
  std::vector<Sample> cases = bench_cases(op);
  LATHE_USER_CHECK(!cases.empty(), "bench op {}: the op has no sample to take parameters from", op.name());
  Sample s = std::move(cases[0]);
  s.label = text;
  if (shapes.size() == 1 && op.has(kElementwise)) shapes.resize(s.inputs.size(), shapes[0]);
  LATHE_USER_CHECK(shapes.size() == s.inputs.size(), "bench op {}: expected {} shapes joined by commas, got \"{}\"",
                   op.name(), s.inputs.size(), text);
  // Whatever an integer input counts (rows, classes), it stays within the smallest dimension given.
  int64_t smallest = std::numeric_limits<int64_t>::max();
  for (const Shape& shape : shapes)
    for (const int64_t d : shape) smallest = std::min(smallest, d);
  for (size_t i = 0; i < shapes.size(); ++i) {
    s.inputs[i].type.shape = shapes[i];
    if (!is_float(s.inputs[i].type.dtype))
      s.inputs[i].hi = std::max(s.inputs[i].lo, std::min(s.inputs[i].hi, static_cast<double>(smallest - 1)));
  }
  Types in;
  for (const SampleInput& x : s.inputs) in.push_back(x.type);
  (void)op.infer(in, s.params.get());  // throws where parameters and shapes do not fit
  return s;
}

OpBenchRow bench_case(const OpDef& op, const Sample& s, const Backend& backend, const DeviceOptions& options,
                      const Peak& peak, int rounds) {
  OpBenchRow row{.label = s.label, .in = {}, .kernels = {}, .declined = "", .seconds = {}, .cost = {}};
  for (const SampleInput& x : s.inputs) row.in.push_back(x.type);
  const Target target = backend.target(options);
  ProgramSet set;
  try {
    std::vector<Graph> graphs;
    graphs.push_back(run_pipeline(sample_graph(op, s), {target}));
    set = plan(std::move(graphs), target, backend.kernels());
  } catch (const UserError& e) {
    row.declined = e.what();
    return row;
  }
  if (set.programs[0].launches.empty()) return row;
  Session session({}, std::move(set), backend.open(options), {.slots = 1, .snapshot = false});
  Executor& e = session.executor();
  const Program& program = e.set().programs[0];
  for (const Port& p : program.inputs) {
    const size_t index = std::stoul(p.name.substr(1));  // sample_graph names them x0, x1, ...
    fill(s.inputs[index], e.staging(0, p.name), p.type.numel());
  }
  for (const Launch& l : program.launches) {
    row.kernels.emplace_back(l.candidate.name);
    row.cost.flops += l.flops();
    row.cost.bytes_read += l.cost.bytes_read;
    row.cost.bytes_written += l.cost.bytes_written;
  }
  std::vector<double> times;
  double spent = 0;
  for (int i = -1; i < rounds || (spent < 0.3 && i < 1000); ++i) {
    const std::vector<double> launches = e.profile(0, 0);
    const double seconds = std::accumulate(launches.begin(), launches.end(), 0.0);
    if (i < 0) continue;  // the first touches memory
    times.push_back(seconds);
    spent += seconds;
  }
  row.seconds = summarize(std::move(times));
  row.flops_percent = 100 * row.cost.flops / row.seconds.median / peak.flops_per_second;
  row.bytes_percent = 100 * (row.cost.bytes_read + row.cost.bytes_written) / row.seconds.median / peak.bytes_per_second;
  return row;
}

}  // namespace lathe
