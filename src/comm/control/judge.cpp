#include "comm/control/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace lathe::comm {
namespace {

using Selects = std::function<bool(const RankView&)>;

// "rank 2", "ranks 2, 3 and 5"; of many the first ones.
std::string list_ranks(std::span<const RankView> ranks, const Selects& selects) {
  constexpr size_t kShown = 8;
  const auto count = static_cast<size_t>(std::count_if(ranks.begin(), ranks.end(), selects));
  std::string text = count == 1 ? "rank " : "ranks ";
  size_t shown = 0;
  for (const RankView& r : ranks) {
    if (!selects(r)) continue;
    if (shown == kShown) return fmt::format("{} and {} more", text, count - shown);
    ++shown;
    text += fmt::format("{}{}", shown == 1 ? "" : shown == count ? " and " : ", ", r.rank);
  }
  return text;
}

double waits(const RankView& r) { return r.place.seconds + r.silence; }

}  // namespace

std::string name_of(const RankView& r) { return fmt::format("rank {} (host {})", r.rank, r.host); }

std::string last_seen(const RankView& r) {
  return fmt::format("last seen {}, {:.2f} s ago", to_string(r.place), r.silence);
}

Verdict gone(const RankView& r) {
  return {Fault::gone, r.rank, fmt::format("{}: killed or gone; {}", name_of(r), last_seen(r))};
}

Verdict silent(const RankView& r) {
  return {Fault::silent, r.rank,
          fmt::format("{}: no sign of life for {:.1f} s, it is stopped or its host or link is down; last seen {}",
                      name_of(r), r.silence, to_string(r.place))};
}

std::optional<Verdict> judge(std::span<const RankView> ranks, double timeout) {
  const RankView* quiet = nullptr;
  for (const RankView& r : ranks)
    if (!r.is_done && r.silence > timeout && (!quiet || r.silence > quiet->silence)) quiet = &r;
  if (quiet) return silent(*quiet);

  // Who has waited longest, and for whom: those that have not entered the collective that it is in.
  const RankView* waiting = nullptr;
  for (const RankView& r : ranks)
    if (r.place.inside && waits(r) > timeout && (!waiting || waits(r) > waits(*waiting))) waiting = &r;
  if (!waiting) return std::nullopt;
  const int64_t number = waiting->place.number;
  int64_t least = number;
  for (const RankView& r : ranks) least = std::min(least, r.place.number);
  const Selects is_inside = [&](const RankView& r) { return r.place.inside && r.place.number == number; };
  // Messages have timeouts, too, and name their two ends: they come first.
  if (least == number && waits(*waiting) < timeout + 1) return std::nullopt;
  if (least == number)
    return Verdict{
        Fault::stuck, -1,
        fmt::format("{}: {} for {:.1f} s; every rank has entered it and it does not end: a link between ranks "
                    "may be down",
                    list_ranks(ranks, is_inside), to_string(waiting->place), waits(*waiting))};
  const Selects is_late = [&](const RankView& r) { return r.place.number == least; };
  const RankView& late = *std::find_if(ranks.begin(), ranks.end(), is_late);
  const bool alone = std::count_if(ranks.begin(), ranks.end(), is_late) == 1;
  const bool one_waits = std::count_if(ranks.begin(), ranks.end(), is_inside) == 1;
  return Verdict{Fault::late, late.rank,
                 fmt::format("{}: late by {:.1f} s; {} {} {}; {}{}{}", name_of(late), waits(*waiting),
                             list_ranks(ranks, is_inside), one_waits ? "waits for it" : "wait for it",
                             to_string(waiting->place), last_seen(late), late.is_done ? ", it is done" : "",
                             alone ? "" : fmt::format("; as late: {}", list_ranks(ranks, is_late)))};
}

}  // namespace lathe::comm
