#include "plan/recompute.h"

#include <algorithm>

#include "plan/curve.h"

namespace lathe {
namespace {

constexpr double kHotShare = 0.03;    // of the peak: runs this close to it count
constexpr size_t kLargestGroup = 96;  // nodes that one dropped value may need again
constexpr int kTries = 128;           // candidates that are simulated in one step
constexpr int64_t kSmallShare = 8;  // an operand this many times smaller than the result is kept rather than recomputed
constexpr size_t kNodesPerDrop = 1000;  // one drop per step for each so many nodes, for speed

}  // namespace

double launch_seconds(const Cost& c, const Target& t) {
  const Rates rates = rates_of(t);
  return std::max(c.flops / rates.flops, (c.bytes_read + c.bytes_written) / rates.bytes);
}

Recompute::Recompute(const LiveModel& model, const Target& target) : model_(model), reruns_(model.size()) {
  for (int32_t i = 0; i < static_cast<int32_t>(model.size()); ++i)
    seconds_.push_back(launch_seconds(model.node(i).cost, target));
  model_.simulate(reruns_, profile_);
}

void Recompute::find_hot() {
  mark_ = profile_.peak - static_cast<int64_t>(kHotShare * static_cast<double>(profile_.peak));
  hot_.clear();
  hot_area_ = 0;
  for (int32_t i = 0; i < static_cast<int32_t>(profile_.bytes.size()); ++i)
    if (const int64_t over = profile_.bytes[static_cast<size_t>(i)] - mark_; over > 0) {
      hot_.push_back(i);
      hot_area_ += static_cast<double>(over);
    }
}

// Bytes above the mark that go when `bytes` are taken off the runs between two (excluded), summed over these runs.
double Recompute::above_mark(int32_t from, int32_t to, int64_t bytes) const {
  double sum = 0;
  for (auto i = std::upper_bound(hot_.begin(), hot_.end(), from); i != hot_.end() && *i < to; ++i)
    sum += static_cast<double>(std::min(bytes, profile_.bytes[static_cast<size_t>(*i)] - mark_));
  return sum;
}

int32_t Recompute::group_start(int32_t at) const {
  const auto i = std::lower_bound(profile_.runs.begin(), profile_.runs.end(), at,
                                  [](const LiveProfile::Run& r, int32_t t) { return r.at < t; });
  return static_cast<int32_t>(i - profile_.runs.begin());
}

bool Recompute::is_live_at(int32_t result, int32_t at) const {
  const auto times = reruns_.times(model_.result(result).node);
  const auto next = std::upper_bound(times.begin(), times.end(), at);
  const int32_t instance = profile_.base[static_cast<size_t>(result)] + static_cast<int32_t>(next - times.begin());
  const int32_t last = profile_.last[static_cast<size_t>(instance)];
  return last >= static_cast<int32_t>(profile_.runs.size()) || profile_.runs[static_cast<size_t>(last)].at >= at;
}

// Dropping a result after the run `from` and computing it again at `at`. `move`: what already runs again later does so
// now instead, and stays.
std::optional<Recompute::Candidate> Recompute::evaluate(int32_t result, int32_t from, int32_t at, bool move) const {
  const int32_t start = group_start(at);
  const int64_t bytes = model_.result(result).bytes;
  Candidate c;
  double cost = 0, gain = above_mark(from, start, bytes);
  std::vector<int32_t> todo{model_.result(result).node};
  const auto is_planned = [&](int32_t node) {
    return std::ranges::any_of(c.edits, [&](const Edit& e) { return e.node == node; });
  };
  while (!todo.empty()) {
    const int32_t node = todo.back();
    todo.pop_back();
    if (is_planned(node)) continue;
    if (c.edits.size() == kLargestGroup || model_.node(node).latest < at) return std::nullopt;
    Edit edit{node, at, -1};
    const auto times = reruns_.times(node);
    const auto next = std::upper_bound(times.begin(), times.end(), at);
    if (move && next != times.end()) {
      edit.remove = *next;
      for (int32_t q : model_.node(node).results) gain -= above_mark(start, group_start(*next), model_.result(q).bytes);
    } else {
      cost += seconds_[static_cast<size_t>(node)];
    }
    c.edits.push_back(edit);
    for (int32_t q : model_.node(node).reads) {
      const LiveModel::ResultFacts& operand = model_.result(q);
      if (is_live_at(q, at)) continue;
      const auto runs = reruns_.times(operand.node);
      if (std::binary_search(runs.begin(), runs.end(), at)) continue;
      if (operand.bytes <= bytes / kSmallShare || model_.node(operand.node).latest < at) {
        const int32_t instance = profile_.base[static_cast<size_t>(q)] +
                                 static_cast<int32_t>(std::upper_bound(runs.begin(), runs.end(), at) - runs.begin());
        gain -= above_mark(profile_.last[static_cast<size_t>(instance)], start, operand.bytes);
      } else {
        todo.push_back(operand.node);
      }
    }
  }
  if (gain <= 0) return std::nullopt;
  c.price = cost / gain;
  return c;
}

std::vector<Recompute::Candidate> Recompute::candidates() const {
  const int32_t peak = profile_.peak_run, end = static_cast<int32_t>(profile_.runs.size());
  if (peak == end) return {};
  // Of the instances that live across the peak: the last run that used them before, and the first that does after.
  std::vector<int32_t> before(profile_.first.size(), -1), after(profile_.first.size(), -1), done(model_.size(), 0);
  for (int32_t i = 0; i < end; ++i) {
    const int32_t node = profile_.runs[static_cast<size_t>(i)].node;
    const auto note = [&](int32_t q) {
      const size_t instance = static_cast<size_t>(profile_.base[static_cast<size_t>(q)] +
                                                  done[static_cast<size_t>(model_.result(q).node)] - 1);
      if (i < peak)
        before[instance] = i;
      else if (after[instance] < 0)
        after[instance] = i;
    };
    for (int32_t q : model_.node(node).reads) note(q);
    ++done[static_cast<size_t>(node)];
    for (int32_t q : model_.node(node).results) note(q);
  }
  std::vector<Candidate> out;
  for (int32_t q = 0; q < static_cast<int32_t>(model_.results()); ++q) {
    const LiveModel::ResultFacts& r = model_.result(q);
    if (r.at_end || r.bytes == 0 || model_.node(r.node).latest == 0) continue;
    const int32_t first = profile_.base[static_cast<size_t>(q)];
    for (int32_t i = first; i <= first + static_cast<int32_t>(reruns_.times(r.node).size()); ++i) {
      const int32_t from = before[static_cast<size_t>(i)], to = after[static_cast<size_t>(i)];
      if (from < 0 || to <= peak) continue;
      const int32_t at = profile_.runs[static_cast<size_t>(to)].at;
      const int32_t made = profile_.runs[static_cast<size_t>(profile_.first[static_cast<size_t>(i)])].at;
      if (made == at || group_start(at) <= peak) continue;
      const auto moved = evaluate(q, from, at, true);
      if (moved) out.push_back(*moved);
      if (!moved || std::ranges::any_of(moved->edits, [](const Edit& e) { return e.remove >= 0; }))
        if (auto kept = evaluate(q, from, at, false)) out.push_back(std::move(*kept));
    }
  }
  std::ranges::stable_sort(out, {}, &Candidate::price);
  return out;
}

// False, and nothing is changed, when another drop of the same step has been there before.
bool Recompute::apply(const std::vector<Edit>& edits) {
  for (const Edit& e : edits) {
    const auto times = reruns_.times(e.node);
    if (std::binary_search(times.begin(), times.end(), e.add) ||
        (e.remove >= 0 && !std::binary_search(times.begin(), times.end(), e.remove)))
      return false;
  }
  for (const Edit& e : edits) {
    if (e.remove >= 0) reruns_.remove(e.node, e.remove);
    reruns_.add(e.node, e.add);
  }
  return true;
}

void Recompute::revert(const std::vector<Edit>& edits) {
  for (size_t i = edits.size(); i-- > 0;) {
    reruns_.remove(edits[i].node, edits[i].add);
    if (edits[i].remove >= 0) reruns_.add(edits[i].node, edits[i].remove);
  }
}

bool Recompute::improves(const LiveProfile& now) const {
  if (now.peak != profile_.peak) return now.peak < profile_.peak;
  double area = 0;
  for (int64_t b : now.bytes) area += static_cast<double>(std::max<int64_t>(0, b - mark_));
  return area < hot_area_;
}

bool Recompute::search() {
  find_hot();
  const std::vector<Candidate> list = candidates();
  LiveProfile next;
  size_t batch = 1 + model_.size() / kNodesPerDrop, begin = 0;
  for (int tries = 0; tries < kTries && begin < list.size(); ++tries) {
    Step step{{}, profile_.peak};
    for (size_t i = begin; i < std::min(list.size(), begin + batch); ++i)
      if (apply(list[i].edits)) step.edits.insert(step.edits.end(), list[i].edits.begin(), list[i].edits.end());
    model_.simulate(reruns_, next);
    if (improves(next)) {
      std::swap(profile_, next);
      steps_.push_back(std::move(step));
      ++taken_;
      return true;
    }
    revert(step.edits);
    if (batch > 1)
      batch /= 2;
    else
      ++begin;
  }
  return false;
}

bool Recompute::lower() {
  if (taken_ == steps_.size()) return !at_end_ && !(at_end_ = !search());
  const Step& step = steps_[taken_++];
  for (const Edit& e : step.edits) {
    if (e.remove >= 0) reruns_.remove(e.node, e.remove);
    reruns_.add(e.node, e.add);
  }
  model_.simulate(reruns_, profile_);
  return true;
}

std::optional<Reruns> Recompute::fit(int64_t bytes) {
  if (taken_ > 0 && steps_[taken_ - 1].peak_before <= bytes) {
    while (taken_ > 0 && steps_[taken_ - 1].peak_before <= bytes) revert(steps_[--taken_].edits);
    model_.simulate(reruns_, profile_);
  }
  while (peak() > bytes)
    if (!lower()) return std::nullopt;
  Reruns out = reruns_;
  std::vector<Edit> all;
  for (int32_t node = 0; node < static_cast<int32_t>(model_.size()); ++node)
    for (int32_t t : out.times(node)) all.push_back({node, t, -1});
  std::ranges::stable_sort(all, [&](const Edit& a, const Edit& b) {
    return seconds_[static_cast<size_t>(a.node)] > seconds_[static_cast<size_t>(b.node)];
  });
  LiveProfile now;
  const size_t batch = 1 + model_.size() / kNodesPerDrop;
  for (size_t begin = 0; begin < all.size(); begin += batch) {
    const size_t end = std::min(all.size(), begin + batch);
    for (size_t i = begin; i < end; ++i) out.remove(all[i].node, all[i].add);
    model_.simulate(out, now);
    if (now.peak <= bytes) continue;
    for (size_t i = begin; i < end; ++i) out.add(all[i].node, all[i].add);
  }
  return out;
}

}  // namespace lathe
