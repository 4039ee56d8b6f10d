#include "train/memory_curve.h"

#include "io/svg.h"
#include "run/peak.h"
#include "train/run_dir.h"

namespace lathe {
namespace {

void find_rates(const Recipe& r, const CompileOptions& o, const Target& target, MemoryCurve& out) {
  if (o.target && target.peak_flops > 0 && target.peak_bandwidth > 0) {
    out.rates = {target.peak_flops, target.peak_bandwidth};
    out.rates_from = "target file";
    return;
  }
  const DeviceName device = parse_device_name(r.device.name);
  const Backend& backend = find_backend(device.backend);
  if (o.target || device.index >= static_cast<int>(backend.devices().size())) {
    out.rates = {1e11, 2e10};
    out.rates_from = "assumed";
    return;
  }
  const Peak peak = measure_peak(backend, {device.index, static_cast<int>(r.device.threads)});
  out.rates = {peak.flops_per_second, peak.bytes_per_second};
  out.rates_from = "measured";
}

}  // namespace

MemoryCurve memory_curve(const Recipe& recipe, const DataSpec& data, const CompileOptions& options, int points) {
  Recipe r = recipe;
  r.memory.budget = {};
  CompileOptions o = options;
  o.device_memory = Target().memory;
  const Compiled c = compile(r, data, o);
  MemoryCurve out;
  out.device = c.target.name;
  out.rest = c.memory().total() - c.set.arena_bytes;
  find_rates(c.recipe, o, c.target, out);
  std::vector<Graph> graphs;
  for (Step& s : build_steps(r, data, o))
    graphs.push_back(run_pipeline(std::move(s.graph), {c.target, precision_of(r)}, o.passes));
  const Backend& backend = find_backend(o.target ? o.target->backend : parse_device_name(r.device.name).backend);
  out.points = memory_curve(graphs, c.target, backend.kernels(), {}, out.rates, points);
  return out;
}

void draw_curve(const MemoryCurve& c, const std::string& path) {
  io::LineChart chart{"memory.budget, MiB", "predicted ms per step", {{"time", {}, {}}}, false, {}};
  for (const CurvePoint& p : c.points) {
    chart.lines[0].x.push_back(static_cast<double>(p.budget + c.rest) / (1 << 20));
    chart.lines[0].y.push_back(1e3 * p.seconds);
  }
  io::PosixFs fs;
  replace_text(fs, path, io::svg_file(chart));
}

}  // namespace lathe
