#include "report/report_cost.h"

#include <algorithm>
#include <cstring>

#include "base/format_bytes.h"
#include "loop/step_inputs.h"
#include "peak/peak.h"
#include "rundir/progress.h"

namespace lathe {
namespace {

constexpr int kTimings = 5;
constexpr size_t kMostRows = 40;

// A Program of a step, and how often the step runs it.
struct Phase {
  size_t program = 0;
  int64_t times = 1;
  const char* name = "";  // empty: the step is this one
};

std::vector<Phase> phases_of(const Compiled& c) {
  if (c.steps.accumulate <= 1) return {{c.program("train")}};
  return {{c.program("accumulate"), c.steps.accumulate, "micro-batch"}, {c.program("update"), 1, "update"}};
}

io::ReportPart memory_part(const Program& p, std::string title) {
  const MemoryReport& m = p.memory;
  const size_t n = m.timeline.size();
  if (n == 0) return {};
  const ByteUnit unit = byte_unit(m.total / 2);  // so that the axis has steps
  io::StackChart chart{"node", std::string(unit.name), {}, {}};
  for (const MemoryClass k :
       {MemoryClass::weights, MemoryClass::optimizer, MemoryClass::staging, MemoryClass::communication}) {
    if (k == MemoryClass::communication && m.of(k) == 0) continue;
    chart.names.emplace_back(to_string(k));
    chart.values.emplace_back(n, static_cast<double>(m.of(k)) / unit.bytes);
  }
  int64_t kept = m.of(MemoryClass::gradients) - m.timeline[static_cast<size_t>(m.peak)].gradients;  // over steps
  for (const auto& [name, member] : {std::pair{"gradients", &MemoryReport::Moment::gradients},
                                     std::pair{"activations", &MemoryReport::Moment::activations},
                                     std::pair{"workspace", &MemoryReport::Moment::workspace}}) {
    chart.names.emplace_back(name);
    auto& v = chart.values.emplace_back();
    for (const auto& moment : m.timeline) v.push_back(static_cast<double>(moment.*member + kept) / unit.bytes);
    kept = 0;
  }
  io::ReportPart part{std::move(title), "", io::stack_chart(chart), {}, {}};
  part.text = fmt::format(
      "Most is live at node {} of {}; the run allocates {} for this Program, {:.1f} % above the least that its order "
      "allows.",
      m.peak, n - 1, format_bytes(m.total),
      m.lower_bound > 0 ? 100.0 * static_cast<double>(m.scratch - m.lower_bound) / static_cast<double>(m.lower_bound)
                        : 0.0);
  return part;
}

io::ReportPart holders_part(const Program& p) {
  io::ReportPart part{"What holds the peak", "", "", {}, {{"value", "size"}, {}}};
  for (const std::string& h : p.memory.holders) {
    const size_t colon = h.rfind(": ");
    part.table.rows.push_back({h.substr(0, colon), h.substr(colon + 2)});
  }
  return part;
}

// Fills slot 0 with the first samples.
void stage_batch(Executor& e, const Compiled& c, const data::Source& source) {
  std::vector<std::vector<std::byte>> fields;
  for (const data::Field& f : source.fields()) fields.emplace_back(static_cast<size_t>(f.type.bytes()));
  for (int64_t i = 0; i < c.steps.batch; ++i) {
    std::vector<std::span<std::byte>> spans(fields.begin(), fields.end());
    source.read(i % source.size(), spans);
    for (size_t f = 0; f < 2; ++f)
      std::memcpy(e.staging(0, f == 0 ? "x" : "y") + static_cast<size_t>(i) * fields[f].size(), fields[f].data(),
                  fields[f].size());
    std::memcpy(e.staging(0, "index") + static_cast<size_t>(i) * sizeof(int64_t), &i, sizeof i);
  }
  stage_step_inputs(e, 0, c.recipe.seed, 0, c.recipe.optimizer.lr, 1.0 / static_cast<double>(c.steps.batch));
  stage_optional_inputs(e, 0, c, 0);
}

// Best time of each launch, in the order of the Program.
std::vector<double> time_program(Executor& e, size_t program) {
  std::vector<double> best;
  for (int k = 0; k < kTimings; ++k) {
    const std::vector<double> seconds = e.profile(program, 0);
    if (best.empty()) best = seconds;
    for (size_t i = 0; i < best.size(); ++i) best[i] = std::min(best[i], seconds[i]);
  }
  return best;
}

// Launches over a whole step: one of a Program that runs several times has the sum of its times, flops and bytes.
struct TimedStep {
  std::vector<io::Roofline::Point> launches;
  double seconds = 0;
  std::string about;
};

TimedStep time_step(Executor& e, const Compiled& c) {
  TimedStep out;
  std::vector<std::string> sums;
  size_t count = 0;
  for (const Phase& phase : phases_of(c)) {
    const Program& p = c.set.programs[phase.program];
    const std::vector<double> seconds = time_program(e, phase.program);
    const auto times = static_cast<double>(phase.times);
    double sum = 0;
    for (size_t i = 0; i < p.launches.size(); ++i) {
      const Launch& l = p.launches[i];
      sum += seconds[i];
      out.launches.push_back(
          {fmt::format("{}{}{} {}", phase.name, *phase.name ? ": " : "", l.candidate.name, l.node.origin),
           times * l.flops(), times * (l.cost.bytes_read + l.cost.bytes_written), times * seconds[i]});
    }
    out.seconds += times * sum;
    count += static_cast<size_t>(phase.times) * p.launches.size();
    sums.push_back(phase.times > 1 ? fmt::format("{} micro-batches of {:.2f} ms", phase.times, 1e3 * sum)
                                   : fmt::format("the update of {:.2f} ms", 1e3 * sum));
  }
  out.about = fmt::format("One step, each launch waited for: {:.2f} ms in {} launches", 1e3 * out.seconds, count);
  if (sums.size() > 1)
    out.about += fmt::format(": {}; a row of a micro-batch is the sum over all {}", fmt::join(sums, " and "),
                             c.steps.accumulate);
  return out;
}

}  // namespace

std::vector<io::ReportPart> memory_parts(const Compiled& c) {
  std::vector<io::ReportPart> parts;
  for (const Phase& phase : phases_of(c)) {
    const Program& p = c.set.programs[phase.program];
    const std::string what = phase.times > 1 ? fmt::format("one of the {} micro-batches of a step", phase.times)
                             : *phase.name   ? std::string("the update that ends a step")
                                             : std::string("one step");
    parts.push_back(memory_part(p, "Memory over " + what));
    if (c.mesh.ranks > 1) parts.back().text += " This is the first rank's.";
    parts.push_back(holders_part(p));
    if (*phase.name) parts.back().title += fmt::format(" of the {}", phase.name);
  }
  return parts;
}

std::vector<io::ReportPart> time_parts(Executor& e, const Compiled& c, const data::Source& train) {
  stage_batch(e, c, train);
  TimedStep step = time_step(e, c);
  const DeviceName device = parse_device_name(c.recipe.device.name);
  Peak peak = measure_peak(find_backend(device.backend), {device.index, static_cast<int>(c.recipe.device.threads)});
  auto& launches = step.launches;
  // A machine that was always busy when its peak was measured has shown here what it can do.
  for (const auto& l : launches)
    if (l.seconds > 0) peak.flops_per_second = std::max(peak.flops_per_second, l.flops / l.seconds);
  io::ReportPart roof{
      "Roofline",
      "Each circle is a launch; its area is its share of the time. The line is the limit of the machine: "
      "its fastest product to the right, its memory to the left. Circles above the slope find their "
      "operands in caches, which are faster than memory.",
      io::roofline_chart({peak.flops_per_second, peak.bytes_per_second, launches}),
      {},
      {}};
  std::ranges::stable_sort(launches, [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  const size_t shown = launches.size() <= kMostRows + 1 ? launches.size() : kMostRows;
  io::ReportPart nodes{
      "Time per node",
      fmt::format(
          "{}.{} The percentage is that of the limit which the launch meets first: {} flop/s, the fastest product "
          "that this machine has shown, or {} B/s of its memory. Products and convolutions mostly meet the "
          "first, all else the second; there more than 100 % has what finds its operands in caches.",
          step.about,
          shown < launches.size() ? fmt::format(" The {} longest are shown, the others summed up.", shown) : "",
          io::short_number(peak.flops_per_second), io::short_number(peak.bytes_per_second)),
      "",
      {},
      {{"kernel", "us", "share", "GFLOP/s", "GB/s", "of limit"}, {}}};
  const auto add_row = [&](const io::Roofline::Point& l, double least) {
    const auto rate = [&](double amount) {
      return l.seconds > 0 ? fmt::format("{:.1f}", 1e-9 * amount / l.seconds) : "-";
    };
    nodes.table.rows.push_back({l.name, fmt::format("{:.1f}", 1e6 * l.seconds),
                                fmt::format("{:.1f} %", step.seconds > 0 ? 100 * l.seconds / step.seconds : 0),
                                rate(l.flops), rate(l.bytes),
                                l.seconds > 0 ? fmt::format("{:.0f} %", 100 * least / l.seconds) : "-"});
  };
  io::Roofline::Point rest;
  double least_rest = 0;
  for (size_t i = 0; i < launches.size(); ++i) {
    const auto& l = launches[i];
    const double least = std::max(l.flops / peak.flops_per_second, l.bytes / peak.bytes_per_second);
    if (i < shown) {
      add_row(l, least);
      continue;
    }
    rest.flops += l.flops;
    rest.bytes += l.bytes;
    rest.seconds += l.seconds;
    least_rest += least;
  }
  rest.name = fmt::format("{} others", launches.size() - shown);
  if (shown < launches.size()) add_row(rest, least_rest);
  return {std::move(roof), std::move(nodes)};
}

}  // namespace lathe
