#include "base/did_you_mean.h"

#include <algorithm>
#include <cctype>

namespace lathe {

int edit_distance(std::string_view a, std::string_view b) {
  constexpr size_t kMax = 80;
  a = a.substr(0, kMax);
  b = b.substr(0, kMax);
  int rows[3][kMax + 1];
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int* now = rows[i % 3];
    const int* last = rows[(i - 1) % 3];
    now[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) {
        now[j] = std::min(now[j], rows[(i - 2) % 3][j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

int word_distance(std::string_view wrong, std::string_view word) {
  const size_t common = std::min(wrong.size(), word.size());
  if (common >= 3 && wrong.size() != word.size() && wrong.substr(0, common) == word.substr(0, common)) return 1;
  return edit_distance(wrong, word);
}

int allowed_distance(std::string_view wrong) { return std::max(1, static_cast<int>(wrong.size()) / 3); }

std::optional<std::string_view> did_you_mean(std::string_view wrong, std::span<const std::string_view> words) {
  std::optional<std::string_view> best;
  int best_distance = allowed_distance(wrong) + 1;
  for (std::string_view word : words) {
    const int distance = word_distance(wrong, word);
    if (distance < best_distance) best = word, best_distance = distance;
  }
  return best;
}

}  // namespace lathe
