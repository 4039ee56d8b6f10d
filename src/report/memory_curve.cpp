#include "report/memory_curve.h"

#include "base/format_bytes.h"
#include "io/page/svg.h"
#include "peak/peak.h"
#include "rundir/run_dir.h"

namespace lathe {
namespace {

void find_rates(const Recipe& r, const CompileOptions& o, const Target& target, MemoryCurve& out) {
  if (o.spec && target.peak_flops > 0 && target.peak_bandwidth > 0) {
    out.rates = {target.peak_flops, target.peak_bandwidth};
    out.rates_from = "device spec";
    return;
  }
  const DeviceName device = parse_device_name(r.device.name);
  const Backend& backend = find_backend(device.backend);
  if (o.spec || device.index >= static_cast<int>(backend.devices().size())) {
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
  find_rates(c.recipe, o, c.target, out);
  // Under a budget evaluation goes in batches that are small enough (compile.cpp): training alone makes the curve.
  Recipe small = r;
  small.train.eval_batch = 1;
  const Compiled least = compile(small, data, o);
  out.rest = least.memory().total() - least.set.arena_bytes;
  const std::vector<Graph> graphs =
      run_pipeline(build_steps(small, data, o), pass_context(r, c.target), o.passes).graphs;
  const Backend& backend = find_backend(o.spec ? o.spec->backend : parse_device_name(r.device.name).backend);
  out.points = memory_curve(graphs, c.target, backend.kernels(), {}, out.rates, points);
  // What the run takes without a budget, where large batches of evaluation hold the peak.
  CurvePoint whole = out.points.front();
  whole.budget = c.memory().total() - out.rest;
  whole.arena_bytes = c.set.arena_bytes;
  if (whole.budget > out.points.front().budget) out.points.insert(out.points.begin(), whole);
  return out;
}

void draw_curve(const MemoryCurve& c, const std::string& path) {
  int64_t most = 0;
  for (const CurvePoint& p : c.points) most = std::max(most, p.budget + c.rest);
  const ByteUnit unit = byte_unit(most / 2);
  io::LineChart chart{
      fmt::format("memory.budget, {}", unit.name), "predicted ms per step", {{"time", {}, {}}}, false, {}};
  for (const CurvePoint& p : c.points) {
    chart.lines[0].x.push_back(static_cast<double>(p.budget + c.rest) / unit.bytes);
    chart.lines[0].y.push_back(1e3 * p.seconds);
  }
  io::PosixFs fs;
  replace_text(fs, path, io::svg_file(chart));
}

}  // namespace lathe
