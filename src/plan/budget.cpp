#include "plan/budget.h"

#include <algorithm>
#include <numeric>

namespace lathe {
namespace {

// Packing loses some bytes, and not the same for each set of reruns: so many tries with as much less as was lost, then
// with ever larger steps, a 64th of the live bytes first.
constexpr int kPackingRounds = 6, kMostRounds = 24;

}  // namespace

BudgetFitter::Item::Item(const Draft& d, const std::vector<Choice>& choices, const Target& target,
                         int64_t scratch_bytes)
    : model(d.graph, d.facts, d.order, d.storage, workspaces(choices), lanes(choices), target.alignment),
      recompute(model, target),
      scratch(scratch_bytes) {}

BudgetFitter::BudgetFitter(const Drafts& from, const Target& target) : from_(from), target_(target) {
  std::vector<Draft> drafts = from.drafts;
  const Arena arena(drafts, target);
  int64_t most = 0;
  for (size_t i = 0; i < drafts.size(); ++i) {
    const int64_t scratch = arena.report(i).scratch;
    most = std::max(most, scratch);
    items_.emplace_back(from.drafts[i], from.choices[i], target, scratch);
  }
  const std::vector<int64_t> segments = arena.segments();
  fixed_ = std::accumulate(segments.begin(), segments.end(), int64_t{0}) - most;
}

std::optional<Drafts> BudgetFitter::with_live(int64_t bytes) {
  Drafts out{{}, {}, {}, from_.expanded, from_.readers_first};
  size_t i = 0;
  for (Item& item : items_) {
    const Draft& d = from_.drafts[i];
    const std::vector<Choice>& choices = from_.choices[i++];
    if (item.scratch <= bytes) {
      out.drafts.push_back(d);
      out.choices.push_back(choices);
      out.again.emplace_back();
      continue;
    }
    const auto reruns = item.recompute.fit(bytes);
    if (!reruns) return std::nullopt;
    WithReruns w = apply_reruns(d.graph, choices, d.facts, d.order, *reruns);
    std::vector<int32_t> order(w.graph.nodes.size());
    std::iota(order.begin(), order.end(), 0);
    out.drafts.push_back(make_draft(std::move(w.graph), std::move(order), w.choices));
    out.choices.push_back(std::move(w.choices));
    out.again.push_back(std::move(w.again));
  }
  return out;
}

int64_t BudgetFitter::least_live() {
  int64_t most = 0;
  for (Item& item : items_) {
    while (item.recompute.lower()) {
    }
    most = std::max(most, item.recompute.peak());
  }
  return most;
}

std::optional<Drafts> BudgetFitter::fit(int64_t bytes) {
  int64_t live = bytes - fixed_;
  for (int round = 0; round < kMostRounds; ++round) {
    auto out = with_live(live);
    if (!out) break;
    const int64_t over = arena_bytes(out->drafts, target_) - bytes;
    if (over <= 0) return out;
    live -= std::max(over, live / 64 * std::max(0, round - kPackingRounds + 1));
  }
  if (bytes < lowest()) return std::nullopt;
  return with_live(least_live());
}

// Bytes of the arena with the fewest live bytes.
int64_t BudgetFitter::lowest() {
  if (lowest_ < 0) lowest_ = arena_bytes(with_live(least_live())->drafts, target_);
  return lowest_;
}

int64_t BudgetFitter::smallest() {
  int64_t fits = lowest(), refused = fixed_ + least_live() - 1;
  while (fits - refused > std::max(target_.alignment, fits / 200)) {
    const int64_t middle = refused + (fits - refused) / 2;
    (fit(middle) ? fits : refused) = middle;
  }
  return fits;
}

}  // namespace lathe
