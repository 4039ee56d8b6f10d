#include "loop/ranks/replicas.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "comm/checksum.h"

namespace lathe {
namespace {

constexpr size_t kChunk = 4096;  // bytes of a message: hashes are few

// "rank 2", "ranks 0, 1 and 3".
std::string list_ranks(const std::vector<int>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return out;
}

using RankLists = std::vector<std::vector<int>>;

// Ranks by their hashes of a row: the longest list first.
RankLists sort_ranks(std::span<const uint64_t> hashes, size_t row, size_t rows, int ranks) {
  std::map<uint64_t, std::vector<int>> by_hash;
  for (int r = 0; r < ranks; ++r) by_hash[hashes[static_cast<size_t>(r) * rows + row]].push_back(r);
  RankLists out;
  for (auto& [hash, list] : by_hash) out.push_back(std::move(list));
  std::ranges::sort(out,
                    [](const auto& a, const auto& b) { return a.size() != b.size() ? a.size() > b.size() : a < b; });
  return out;
}

std::vector<int> join(std::span<const std::vector<int>> lists) {
  std::vector<int> out;
  for (const auto& list : lists) out.insert(out.end(), list.begin(), list.end());
  std::ranges::sort(out);
  return out;
}

}  // namespace

std::string describe_difference(std::span<const std::string> names, std::span<const uint64_t> hashes, int ranks) {
  RankLists first;
  std::string what;
  size_t more = 0;  // names that differ, beside the first
  for (size_t row = 0; row < names.size(); ++row) {
    RankLists found = sort_ranks(hashes, row, names.size(), ranks);
    if (found.size() == 1) continue;
    more += !first.empty();
    if (!first.empty()) continue;
    first = std::move(found);
    what = fmt::format("\"{}\"", names[row]);
  }
  LATHE_CHECK(!first.empty(), "all of {} are the same on {} ranks", names.size(), ranks);
  if (more > 0) what += fmt::format(" and of {} more", more);
  if (first[0].size() == first[1].size())
    return fmt::format("{} have different bits of {}, and which of them are wrong cannot be told",
                       list_ranks(join(first)), what);
  const std::vector<int> wrong = join(std::span(first).subspan(1));
  return fmt::format("{} {} other bits of {} than the other {}", list_ranks(wrong), wrong.size() == 1 ? "has" : "have",
                     what, first[0].size());
}

Replicas::Replicas(Executor& executor, const StateTable& state, comm::Group* group, comm::Control* control,
                   int64_t every)
    : executor_(executor), control_(control), every_(every) {
  const auto& ports = executor.set().state;
  for (size_t i = 0; i < ports.size(); ++i) {
    const StateSpec* s = state.find(ports[i].name);
    LATHE_CHECK(s, "no state {}", ports[i].name);
    // Sums of gradients are those of a rank's own samples until they are applied.
    if (!s->part.is_part() && s->kind != InputKind::gradient) rows_.push_back(i);
  }
  if (every == 0 || !group || group->size() == 1 || rows_.empty()) return;
  ranks_.emplace(*group, kChunk);
  ranks_->at(ranks_->label("comparison of replicas"));
  hashes_.resize(rows_.size());
  sums_.resize(static_cast<size_t>(group->size()));
}

void Replicas::compare(int64_t step) {
  if (!ranks_ || same_after_ == step) return;
  for (size_t i = 0; i < rows_.size(); ++i) hashes_[i] = comm::checksum(executor_.copy_state(rows_[i]));
  sums_[static_cast<size_t>(ranks_->rank())] = comm::checksum(std::as_bytes(std::span(hashes_)));
  ranks_->all_gather(std::as_writable_bytes(std::span(sums_)), sizeof sums_[0]);
  if (std::ranges::any_of(sums_, [&](uint64_t s) { return s != sums_[0]; })) fail(step);
  same_after_ = step;
}

void Replicas::fail(int64_t step) {
  std::vector<uint64_t> all(sums_.size() * hashes_.size());
  std::ranges::copy(hashes_,
                    all.begin() + static_cast<ptrdiff_t>(ranks_->rank()) * static_cast<ptrdiff_t>(hashes_.size()));
  ranks_->all_gather(std::as_writable_bytes(std::span(all)), static_cast<int64_t>(hashes_.size() * sizeof all[0]));
  std::vector<std::string> names;
  for (const size_t i : rows_) names.push_back(executor_.set().state[i].name);
  const std::string text = fmt::format(
      "after step {} {}{}: memory, a processor or a link changed them, or the ranks' processors have different "
      "instruction sets; checkpoints are compared before they are written: continue with --resume, without the host "
      "that is wrong (parallel.check_replicas = 0: ranks do not compare)",
      step, describe_difference(names, all, ranks_->size()),
      same_after_ ? fmt::format("; they were the same after step {}", *same_after_) : "");
  // When all have come so far, the first rank says it, and the others wait until they are told: nobody leaves while
  // another one still waits for a message.
  const auto wait_for_all = [&] {
    try {
      ranks_->barrier();
    } catch (const CommError&) {
    }
  };
  wait_for_all();
  if (ranks_->rank() != 0)
    wait_for_all();
  else if (control_)
    control_->fail_alike(text);
  throw DeviceError(text);
}

}  // namespace lathe
