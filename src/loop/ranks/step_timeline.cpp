#include "loop/ranks/step_timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace lathe {
namespace {

constexpr size_t kMostDrawn = 32;    // ranks whose pieces are kept
constexpr double kNarrowest = 1e-3;  // of a step: gaps that nobody would see are closed, pieces left out
constexpr int64_t kMostShift = 8;    // collectives by which the traces of ranks begin at different places

struct Interval {
  int64_t begin = 0, end = 0;
};

struct Collective {
  Interval time;
  const std::string* node = nullptr;
};

// What the trace of a rank has of each part. Collectives are not divided yet.
struct RankSpans {
  std::vector<Interval> parts[kStepParts];
  std::vector<Collective> collectives;
  std::vector<std::pair<Interval, int64_t>> steps;  // with their numbers
  std::vector<Interval> pauses;                     // between steps: evaluations, checkpoints

  std::vector<Interval>& of(StepPart p) { return parts[static_cast<size_t>(p)]; }
};

RankSpans spans_of(const TraceData& d) {
  RankSpans out;
  for (const TraceSpan& s : d.spans) {
    const TraceLabel& l = d.labels[static_cast<size_t>(s.label)];
    const Interval time{s.begin, s.end};
    if (l.kind == kStepSpan)
      out.steps.push_back({time, std::strtoll(l.name.c_str() + l.name.find_last_of(' ') + 1, nullptr, 10)});
    else if (l.kind == kCommunicationSpan)
      out.collectives.push_back({time, &l.node});
    else if (l.kind == kWaitSpan)
      out.of(StepPart::exposed).push_back(time);
    else if (l.kind == kKernelSpan && !s.part)
      out.of(StepPart::compute).push_back(time);
    else if (l.name == "wait for data")
      out.of(StepPart::data).push_back(time);
  }
  std::ranges::sort(out.collectives, {}, [](const Collective& c) { return c.time.begin; });
  std::ranges::sort(out.steps, {}, [](const auto& s) { return s.first.begin; });
  std::vector<int64_t> begins;
  for (const StepPart p : {StepPart::compute, StepPart::data})
    for (const Interval& i : out.of(p)) begins.push_back(i.begin);
  std::ranges::sort(begins);
  for (const auto& [step, number] : out.steps)
    if (const auto first = std::ranges::lower_bound(begins, step.begin); first != begins.end())
      out.pauses.push_back({step.begin, *first});
  return out;
}

int64_t overlap(const std::vector<Interval>& list, Interval window) {
  int64_t sum = 0;
  for (const Interval& i : list)
    sum += std::max<int64_t>(0, std::min(i.end, window.end) - std::max(i.begin, window.begin));
  return sum;
}

// By how many collectives the trace of `other` begins later than that of the first rank (negative: earlier), where
// ranks are threads: the trace begins for all at once, wherever they are. Ends of one collective are near each other on
// all ranks. Traces that do not have the same collectives have none in common.
std::optional<int64_t> find_shift(const std::vector<Collective>& first, const std::vector<Collective>& other) {
  std::optional<int64_t> best;
  double least = std::numeric_limits<double>::infinity();
  const auto count = static_cast<int64_t>(first.size()), others = static_cast<int64_t>(other.size());
  for (int64_t shift = -kMostShift; shift <= kMostShift; ++shift) {
    double apart = 0;
    int64_t pairs = 0;
    bool same = true;
    for (int64_t i = std::max<int64_t>(0, shift); same && i < std::min(count, others + shift); ++i, ++pairs) {
      const Collective &a = first[static_cast<size_t>(i)], &b = other[static_cast<size_t>(i - shift)];
      same = *a.node == *b.node;
      apart += std::abs(static_cast<double>(a.time.end - b.time.end));
    }
    if (!same || pairs == 0 || !(apart / static_cast<double>(pairs) < least)) continue;
    least = apart / static_cast<double>(pairs);
    best = shift;
  }
  return best;
}

// Divides the collectives of all ranks into waiting and moving: until the last rank has come nobody can end. That the
// others wait while a rank pauses between steps does not make it late.
void divide_collectives(std::vector<RankSpans>& ranks, StepTimeline& out) {
  std::vector<int64_t> shifts;
  auto begin = int64_t{0}, end = static_cast<int64_t>(ranks[0].collectives.size());  // those that all have
  for (const RankSpans& r : ranks) {
    const auto shift = find_shift(ranks[0].collectives, r.collectives);
    if (!shift) end = 0;
    shifts.push_back(shift.value_or(0));
    begin = std::max(begin, shifts.back());
    end = std::min(end, static_cast<int64_t>(r.collectives.size()) + shifts.back());
  }
  const auto at = [&](size_t r, int64_t i) -> const Interval& {
    return ranks[r].collectives[static_cast<size_t>(i - shifts[r])].time;
  };
  for (int64_t i = begin; i < end; ++i) {
    size_t last = 0;
    for (size_t r = 0; r < ranks.size(); ++r)
      if (at(r, i).begin > at(last, i).begin) last = r;
    const int64_t all_here = at(last, i).begin;
    double waited = 0;
    for (size_t r = 0; r < ranks.size(); ++r) {
      const Interval time = at(r, i);
      const int64_t moves = std::clamp(all_here, time.begin, time.end);
      if (moves > time.begin) ranks[r].of(StepPart::waiting).push_back({time.begin, moves});
      if (time.end > moves) ranks[r].of(StepPart::transfer).push_back({moves, time.end});
      waited += 1e-9 * static_cast<double>(moves - time.begin - overlap(ranks[last].pauses, {time.begin, moves}));
    }
    out.ranks[last].late += waited / static_cast<double>(ranks.size() - 1);
    ++out.ranks[last].last;
    ++out.collectives;
  }
}

// Within a window, in the order of time; pieces of one part that follow each other are one.
std::vector<RankTimeline::Piece> pieces_in(const RankSpans& r, Interval window) {
  std::vector<RankTimeline::Piece> out;
  const double narrowest = kNarrowest * 1e-9 * static_cast<double>(window.end - window.begin);
  for (size_t part = 0; part < kStepParts; ++part) {
    std::vector<Interval> all = r.parts[part];
    std::ranges::sort(all, {}, &Interval::begin);
    const size_t first = out.size();
    for (const Interval& i : all) {
      const int64_t from = std::max(i.begin, window.begin), to = std::min(i.end, window.end);
      if (to <= from) continue;
      const double begin = 1e-9 * static_cast<double>(from - window.begin),
                   end = 1e-9 * static_cast<double>(to - window.begin);
      if (out.size() > first && begin - out.back().end < narrowest)
        out.back().end = std::max(out.back().end, end);
      else
        out.push_back({static_cast<StepPart>(part), begin, end});
    }
  }
  std::erase_if(out, [&](const RankTimeline::Piece& p) { return p.end - p.begin < narrowest; });
  std::ranges::stable_sort(out, {}, &RankTimeline::Piece::begin);
  return out;
}

}  // namespace

const char* to_string(StepPart p) {
  switch (p) {
    case StepPart::compute: return "computes";
    case StepPart::exposed: return "waits for communication";
    case StepPart::data: return "waits for data";
    case StepPart::transfer: return "moves bytes";
    case StepPart::waiting: return "waits for the last rank";
  }
  return "";
}

std::optional<StepTimeline> find_timeline(std::span<const NamedTrace> traces) {
  if (traces.size() < 2) return {};
  std::vector<RankSpans> ranks;
  StepTimeline out;
  for (const NamedTrace& t : traces) {
    ranks.push_back(spans_of(*t.data));
    out.ranks.emplace_back().name = t.name;
  }
  auto steps = ranks[0].steps;
  if (steps.empty()) return {};
  const Interval whole{steps.front().first.begin, steps.back().first.end};
  out.steps = static_cast<int64_t>(steps.size());
  divide_collectives(ranks, out);
  std::ranges::sort(steps, {}, [](const auto& s) { return s.first.end - s.first.begin; });
  const auto& [window, number] = steps[(steps.size() - 1) / 2];
  out.step = number;
  out.seconds = 1e-9 * static_cast<double>(window.end - window.begin);
  for (size_t r = 0; r < ranks.size(); ++r) {
    RankTimeline& to = out.ranks[r];
    for (size_t part = 0; part < kStepParts; ++part)
      to.sums[part] = 1e-9 * static_cast<double>(overlap(ranks[r].parts[part], whole)) / static_cast<double>(out.steps);
    to.late /= static_cast<double>(out.steps);
    if (r < kMostDrawn) to.pieces = pieces_in(ranks[r], window);
  }
  return out;
}

std::string to_json(const StepTimeline& t) {
  nlohmann::ordered_json j{{"step", t.step},
                           {"seconds", t.seconds},
                           {"steps", t.steps},
                           {"collectives", t.collectives},
                           {"clock_uncertainty", t.uncertainty}};
  for (const RankTimeline& r : t.ranks) {
    nlohmann::ordered_json sums, pieces = nlohmann::ordered_json::array();
    for (size_t i = 0; i < kStepParts; ++i) sums[to_string(static_cast<StepPart>(i))] = r.sums[i];
    for (const RankTimeline::Piece& p : r.pieces)
      pieces.push_back({static_cast<int>(p.part), std::round(1e9 * p.begin) * 1e-9, std::round(1e9 * p.end) * 1e-9});
    j["ranks"].push_back(
        {{"name", r.name}, {"per_step", sums}, {"late", r.late}, {"last", r.last}, {"pieces", pieces}});
  }
  return j.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

std::optional<StepTimeline> parse_timeline(std::string_view text) {
  try {
    const auto j = nlohmann::json::parse(text);
    StepTimeline t{j.at("step"), j.at("seconds"), j.at("steps"), j.at("collectives"), j.at("clock_uncertainty"), {}};
    for (const auto& from : j.at("ranks")) {
      RankTimeline& r = t.ranks.emplace_back();
      r.name = from.at("name");
      for (size_t i = 0; i < kStepParts; ++i) r.sums[i] = from.at("per_step").at(to_string(static_cast<StepPart>(i)));
      r.late = from.at("late");
      r.last = from.at("last");
      for (const auto& p : from.at("pieces")) {
        const size_t part = p.at(0);
        if (part >= kStepParts) return {};
        r.pieces.push_back({static_cast<StepPart>(part), p.at(1), p.at(2)});
      }
    }
    if (t.ranks.size() < 2) return {};
    return t;
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

}  // namespace lathe
