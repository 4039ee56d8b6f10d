#include "plan/cost/exposed.h"

#include <algorithm>
#include <array>

namespace lathe {
namespace {

// Of a collective, as if it were among so many ranks. Whole tensors stay what they are, and costs follow from those.
Cost cost_among(const Launch& l, int64_t ranks) {
  const OpDef& op = *l.node.op;
  Attrs attrs = op.to_attrs(l.node.params.get());
  for (auto& [name, value] : attrs)
    if (name == "ranks") value = ranks;
  return op.cost(l.in, l.out, op.from_attrs(attrs).get());
}

}  // namespace

StepTimes predict_times(const Program& p, const Rates& rates, const Link& link, int64_t ranks) {
  StepTimes out;
  std::array<double, std::size(kLanes)> free{};  // by lane: when it is done with all so far
  std::vector<double> done(p.launches.size(), 0);
  const auto wait = [&](Lane lane, const std::vector<int32_t>& waits) {
    double& now = free[static_cast<size_t>(lane)];
    for (const int32_t w : waits)
      if (w != kStepBegin) now = std::max(now, done[static_cast<size_t>(w)]);
    return now;
  };
  for (size_t i = 0; i < p.launches.size(); ++i) {
    const Launch& l = p.launches[i];
    double seconds = 0;
    if (l.node.op->is_collective()) {
      const Cost c = ranks > 0 ? cost_among(l, ranks) : l.cost;
      seconds = c.turns * link.latency + c.bytes_sent / link.bandwidth;
      out.bytes_sent += c.bytes_sent;
      out.collectives += 1;
    } else {
      seconds = std::max(l.flops() / rates.flops, (l.cost.bytes_read + l.cost.bytes_written) / rates.bytes);
    }
    if (l.lane == Lane::compute) out.compute += seconds;
    if (l.lane == Lane::communication) out.communication += seconds;
    done[i] = wait(l.lane, l.waits) + seconds;
    free[static_cast<size_t>(l.lane)] = done[i];
  }
  double copies = 0;
  for (const FinalCopy& c : p.final_copies) copies += 2 * static_cast<double>(c.dst.bytes) / rates.bytes;
  out.compute += copies;
  out.seconds = wait(Lane::compute, p.end_waits) + copies;
  out.exposed = std::max(0.0, out.seconds - out.compute);
  return out;
}

std::vector<ScalingPoint> predict_scaling(const Program& p, const Rates& rates, const Link& link, int64_t most) {
  std::vector<ScalingPoint> out;
  const auto add = [&](int64_t ranks) {
    const StepTimes times = predict_times(p, rates, link, ranks);
    out.push_back({ranks, times, out.empty() || times.seconds <= 0 ? 1 : out[0].times.seconds / times.seconds});
  };
  for (int64_t ranks = 1; ranks <= most; ranks *= 2) add(ranks);
  if (out.back().ranks < most) add(most);
  return out;
}

std::string scaling_table(std::span<const ScalingPoint> points) {
  std::string out = fmt::format("{:>6} {:>12} {:>14} {:>12} {:>14} {:>11}\n", "ranks", "step ms", "communication",
                                "exposed ms", "sent MB", "efficiency");
  for (const ScalingPoint& p : points)
    out +=
        fmt::format("{:>6} {:>12.3f} {:>14.3f} {:>12.3f} {:>14.3f} {:>9.1f} %\n", p.ranks, 1e3 * p.times.seconds,
                    1e3 * p.times.communication, 1e3 * p.times.exposed, 1e-6 * p.times.bytes_sent, 100 * p.efficiency);
  return out;
}

}  // namespace lathe
