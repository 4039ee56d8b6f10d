#include "loop/rank_rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "comm/socket.h"
#include "comm/text.h"
#include "loop/trainer.h"
#include "rundir/progress.h"

namespace lathe {

std::vector<RankRow> gather_ranks(comm::Group& group, const TrainResult& r, int64_t steps) {
  const RankRow own{.rank = group.rank(),
                    .host = comm::host_name(),
                    .steps = steps,
                    .seconds = r.seconds,
                    .communication = r.communication_seconds,
                    .exposed = r.exposed_seconds,
                    .data = r.wait_seconds,
                    .flops = r.flops_per_second,
                    .predicted = r.memory.total(),
                    .allocated = r.allocated,
                    .resident = r.resident_bytes};
  std::vector<RankRow> rows;
  for (const std::string& text : comm::gather_text(group, to_json(own))) rows.push_back(parse_rank_row(text));
  return rows;
}

void sum_up_ranks(comm::Group& group, int64_t steps, bool is_one_process, TrainResult& r) {
  r.by_rank = gather_ranks(group, r, steps);
  if (r.by_rank.empty()) return;
  r.flops_per_second = 0;
  for (const RankRow& row : r.by_rank) {
    r.flops_per_second += row.flops;
    if (is_one_process && row.rank > 0) r.outside_measured -= row.allocated;
  }
  r.outside_measured = std::max<int64_t>(0, r.outside_measured);
}

double own_seconds(const RankRow& r) { return r.seconds - r.exposed; }

double late_seconds(std::span<const RankRow> rows, const RankRow& row) {
  double least = own_seconds(row);
  for (const RankRow& r : rows) least = std::min(least, own_seconds(r));
  return own_seconds(row) - least;
}

const RankRow* find_straggler(std::span<const RankRow> rows) {
  return rows.size() < 2 ? nullptr : &*std::ranges::max_element(rows, {}, own_seconds);
}

std::string straggler_text(std::span<const RankRow> rows) {
  const RankRow* const last = find_straggler(rows);
  if (!last || !(last->seconds > 0)) return "";
  const double late = late_seconds(rows, *last);
  return fmt::format("rank {} on {}: another one waited {} for it, {:.1f} % of the time", last->rank, last->host,
                     late < 1 ? fmt::format("{:.0f} ms", 1e3 * late) : format_seconds(late),
                     100 * late / last->seconds);
}

std::string to_json(const RankRow& r) {
  const nlohmann::ordered_json j{{"rank", r.rank},
                                 {"host", r.host},
                                 {"steps", r.steps},
                                 {"seconds", r.seconds},
                                 {"communication_seconds", r.communication},
                                 {"exposed_seconds", r.exposed},
                                 {"data_wait_seconds", r.data},
                                 {"flops_per_second", r.flops},
                                 {"memory_predicted", r.predicted},
                                 {"memory_allocated", r.allocated},
                                 {"memory_resident", r.resident}};
  return j.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

RankRow parse_rank_row(std::string_view json) {
  const auto j = nlohmann::json::parse(json, nullptr, false);
  const auto number = [&](const char* key) {
    return j.is_object() && j.contains(key) && j[key].is_number() ? j[key].get<double>() : 0.0;
  };
  const auto whole = [&](const char* key) {
    return j.is_object() && j.contains(key) && j[key].is_number_integer() ? j[key].get<int64_t>() : int64_t{0};
  };
  RankRow r;
  r.rank = static_cast<int>(whole("rank"));
  if (j.is_object() && j.contains("host") && j["host"].is_string()) r.host = j["host"];
  r.steps = whole("steps");
  r.seconds = number("seconds");
  r.communication = number("communication_seconds");
  r.exposed = number("exposed_seconds");
  r.data = number("data_wait_seconds");
  r.flops = number("flops_per_second");
  r.predicted = whole("memory_predicted");
  r.allocated = whole("memory_allocated");
  r.resident = whole("memory_resident");
  return r;
}

}  // namespace lathe
