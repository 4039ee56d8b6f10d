#include "comm/control/stragglers.h"

#include <fmt/format.h>

#include <algorithm>

namespace lathe::comm {

Stragglers::Stragglers(int ranks)
    : marks_(static_cast<size_t>(ranks)), before_(static_cast<size_t>(ranks)), rows_(static_cast<size_t>(ranks)) {
  for (int r = 0; r < ranks; ++r) rows_[static_cast<size_t>(r)].rank = r;
}

void Stragglers::set(int rank, std::span<const Position::Mark> marks) {
  auto& own = marks_[static_cast<size_t>(rank)];
  std::copy_n(marks.begin(), std::min(marks.size(), own.size()), own.begin());
}

void Stragglers::compare() {
  // The last step that all have a mark of.
  int64_t step = -1;
  size_t level = 0;
  for (size_t k = 0; k < Position::kMarks; ++k) {
    const int64_t s = marks_[0][k].step;
    if (s > step && std::all_of(marks_.begin(), marks_.end(), [&](const auto& m) { return m[k].step == s; })) {
      step = s;
      level = k;
    }
  }
  if (step <= before_[0].step) return;
  if (before_[0].step >= 0) {
    const int64_t steps = step - before_[0].step;
    int64_t most = 0;
    for (size_t r = 0; r < rows_.size(); ++r) most = std::max(most, marks_[r][level].waited_ns - before_[r].waited_ns);
    for (size_t r = 0; r < rows_.size(); ++r) {
      const int64_t waited = marks_[r][level].waited_ns - before_[r].waited_ns;
      const double late = 1e-9 * static_cast<double>(most - waited);
      rows_[r].waited += 1e-9 * static_cast<double>(waited);
      rows_[r].late += late;
      rows_[r].largest = std::max(rows_[r].largest, late / static_cast<double>(steps));
    }
    steps_ += steps;
  }
  for (size_t r = 0; r < rows_.size(); ++r) before_[r] = marks_[r][level];
}

std::vector<Straggler> Stragglers::rows() const { return rows_; }

std::string to_table(std::span<const Straggler> rows, int64_t steps) {
  std::vector<Straggler> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.late > b.late; });
  std::string text =
      fmt::format("{:>5}  {:<16} {:>12} {:>14} {:>12}\n", "rank", "host", "late [s]", "late/step [ms]", "waited [s]");
  for (const Straggler& s : sorted)
    text += fmt::format("{:>5}  {:<16} {:>12.3f} {:>14.3f} {:>12.3f}\n", s.rank, s.host, s.late,
                        1e3 * s.late / static_cast<double>(std::max<int64_t>(1, steps)), s.waited);
  return text;
}

}  // namespace lathe::comm
