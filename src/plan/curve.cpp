#include "plan/curve.h"

#include <algorithm>

#include "plan/budget.h"

namespace lathe {
namespace {

CurvePoint curve_point(Drafts& all, const Target& target, const Rates& rates, int64_t budget) {
  const Arena arena(all.drafts, target);
  CurvePoint out;
  out.budget = budget;
  for (int64_t bytes : arena.segments()) out.arena_bytes += bytes;
  out.activations = arena.report(0).of(MemoryClass::activations);
  const Graph& g = all.drafts[0].graph;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (g.nodes[i].op->has(kView)) continue;
    const Cost c = g.cost(g.nodes[i]);
    out.flops += c.flops;
    out.seconds += std::max(c.flops / rates.flops, (c.bytes_read + c.bytes_written) / rates.bytes);
    if (all.again[0].empty() || !all.again[0][i]) continue;
    ++out.launches;
    out.extra_flops += c.flops;
  }
  return out;
}

}  // namespace

Rates rates_of(const Target& t) {
  const bool known = t.peak_flops > 0 && t.peak_bandwidth > 0;
  return known ? Rates{t.peak_flops, t.peak_bandwidth} : Rates{1e11, 2e10};
}

std::vector<CurvePoint> memory_curve(const std::vector<Graph>& graphs, const Target& target, const KernelTable& table,
                                     const PlanOptions& options, const Rates& rates, int points) {
  LATHE_CHECK(!graphs.empty() && points > 1 && rates.flops > 0 && rates.bytes > 0);
  Drafts all = make_drafts(graphs, target, table, options);
  const int64_t whole = arena_bytes(all.drafts, target);
  std::vector<CurvePoint> found{curve_point(all, target, rates, whole)};
  BudgetFitter fitter(all, target);
  const int64_t smallest = fitter.smallest();
  for (int i = 1; i < points; ++i) {
    const int64_t budget = whole - (whole - smallest) * i / (points - 1);
    auto fitting = fitter.fit(budget);
    LATHE_CHECK(fitting, "a budget of {} bytes, where {} can be met", budget, smallest);
    found.push_back(curve_point(*fitting, target, rates, budget));
  }
  // Those that no other one beats in both, from much memory to little; of equal ones that of the least budget.
  std::ranges::stable_sort(found, [](const CurvePoint& a, const CurvePoint& b) {
    return std::pair(a.arena_bytes, a.budget) < std::pair(b.arena_bytes, b.budget);
  });
  std::vector<CurvePoint> out;
  for (CurvePoint& p : found)
    if (out.empty() || (p.arena_bytes > out.back().arena_bytes && p.seconds < out.back().seconds)) out.push_back(p);
  std::ranges::reverse(out);
  return out;
}

}  // namespace lathe
