#include "report/report_ranks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/format_bytes.h"
#include "loop/rank_rows.h"
#include "loop/ranks/step_timeline.h"
#include "rundir/progress.h"
#include "rundir/run_dir.h"

namespace lathe {
namespace {

constexpr size_t kMostRankRows = 64;  // of a table
constexpr int64_t kMostTimelineBytes = int64_t{1} << 26;

std::string milliseconds(double seconds) { return fmt::format("{:.2f}", 1e3 * seconds); }

std::string share(double part, double whole) { return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-"; }

std::string only_some(size_t shown, size_t all) {
  return shown < all ? fmt::format(" Of {} ranks the {} that were waited for most are shown.", all, shown) : "";
}

io::ReportPart table_part(std::vector<RankRow> rows) {
  io::ReportPart part{"Ranks", "", "", {}, {}};
  part.table.header = {"rank",
                       "ms per step",
                       "of its own",
                       "in communication",
                       "exposed",
                       "waiting for data",
                       "another waited for it",
                       "memory predicted",
                       "allocated",
                       "resident, peak"};
  const std::string straggler = straggler_text(rows);
  part.text = fmt::format(
      "Time in training steps. A rank waits for communication that computation does not hide (exposed), for other "
      "ranks "
      "in it, too, and while the first one writes a checkpoint; the rest is of its own. Who has most of that is waited "
      "for{}.",
      straggler.empty() ? "" : ": " + io::readable_text(straggler));
  const std::vector<RankRow> all = rows;
  std::ranges::stable_sort(rows, std::ranges::greater(), own_seconds);
  rows.resize(std::min(rows.size(), kMostRankRows));
  std::ranges::stable_sort(rows, {}, &RankRow::rank);
  part.text += only_some(rows.size(), all.size());
  for (const RankRow& r : rows) {
    const auto per_step = [&](double seconds) {
      return r.steps > 0 ? milliseconds(seconds / static_cast<double>(r.steps)) : "-";
    };
    part.table.rows.push_back(
        {fmt::format("rank {} on {}", r.rank, io::readable_text(r.host)), per_step(r.seconds), per_step(own_seconds(r)),
         share(r.communication, r.seconds), share(r.exposed, r.seconds), share(r.data, r.seconds),
         share(late_seconds(all, r), r.seconds), format_bytes(r.predicted),
         r.allocated == r.predicted ? "the same" : format_bytes(r.allocated), format_bytes(r.resident)});
  }
  return part;
}

// Colours of the page: blue, grey, gold, orange, pink.
constexpr size_t kColours[kStepParts] = {0, 7, 4, 1, 3};

io::ReportPart timeline_part(const StepTimeline& t) {
  io::ReportPart part{fmt::format("Step {} on {} ranks", t.step, t.ranks.size()), "", "", {}, {}};
  io::LaneChart chart{"ms", 1e3 * t.seconds, std::vector<std::string>(io::kChartColours), {}};
  for (size_t i = 0; i < kStepParts; ++i) chart.kinds[kColours[i]] = to_string(static_cast<StepPart>(i));
  for (size_t r = 0; r < t.ranks.size(); ++r) {
    if (t.ranks[r].pieces.empty()) continue;
    io::LaneChart::Lane lane{fmt::format("rank {}", r), std::vector<std::vector<io::LaneChart::Piece>>(2)};
    for (const RankTimeline::Piece& p : t.ranks[r].pieces)
      lane.rows[p.part == StepPart::transfer || p.part == StepPart::waiting].push_back(
          {kColours[static_cast<size_t>(p.part)], 1e3 * p.begin, 1e3 * p.end});
    chart.lanes.push_back(std::move(lane));
  }
  part.svg = io::lane_chart(chart);
  std::vector<size_t> order(t.ranks.size());
  for (size_t r = 0; r < order.size(); ++r) order[r] = r;
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return t.ranks[a].late > t.ranks[b].late; });
  const RankTimeline& last = t.ranks[order[0]];
  part.text = fmt::format(
      "The one of median length of {} steps: what each rank computes, above, and what it sends and receives, below. "
      "Another rank waited longest for {}: {} ms per step on average; it was the last to come to {} of {} "
      "collectives.{}{}",
      t.steps, io::readable_text(last.name), milliseconds(last.late), last.last, t.collectives,
      t.uncertainty > 0 ? fmt::format(" Clocks of ranks agree within {:.0f} us.", std::ceil(1e6 * t.uncertainty)) : "",
      chart.lanes.size() < t.ranks.size() ? fmt::format(" The first {} ranks are drawn.", chart.lanes.size()) : "");
  order.resize(std::min(order.size(), kMostRankRows));
  std::ranges::sort(order);
  part.text += only_some(order.size(), t.ranks.size());
  part.table.header = {"ms per step"};
  for (size_t i = 0; i < kStepParts; ++i) part.table.header.push_back(to_string(static_cast<StepPart>(i)));
  part.table.header.push_back("another waits for it");
  part.table.header.push_back("last to come");
  for (const size_t r : order) {
    const RankTimeline& rank = t.ranks[r];
    auto& row = part.table.rows.emplace_back(1, io::readable_text(rank.name));
    for (const double seconds : rank.sums) row.push_back(milliseconds(seconds));
    row.push_back(milliseconds(rank.late));
    row.push_back(fmt::format("{} of {}", rank.last, t.collectives));
  }
  return part;
}

}  // namespace

std::vector<io::ReportPart> rank_parts(const std::string& run, const nlohmann::json& summary) {
  std::vector<io::ReportPart> parts;
  std::vector<RankRow> rows;
  if (summary.is_object() && summary.contains("by_rank") && summary["by_rank"].is_array())
    for (const auto& row : summary["by_rank"]) rows.push_back(parse_rank_row(row.dump()));
  if (rows.size() > 1) parts.push_back(table_part(std::move(rows)));
  io::PosixFs fs;
  const std::string path = io::join_path(run, kTimelineFile);
  if (!io::info_at(fs, path)) return parts;
  if (const auto timeline = parse_timeline(read_text(fs, path, kMostTimelineBytes)))
    parts.push_back(timeline_part(*timeline));
  else
    parts.push_back({"Ranks over one step", "", "", {}, {}, false, "", "", "timeline.json is not readable."});
  return parts;
}

}  // namespace lathe
