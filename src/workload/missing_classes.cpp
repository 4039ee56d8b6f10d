#include <algorithm>
#include <set>

#include "data/hold_out.h"
#include "workload/dataset.h"

namespace lathe {
namespace {

constexpr size_t kMostNamed = 5;

}  // namespace

std::string missing_classes(const data::Source& s, data::Split split, const std::vector<std::string>& names) {
  if (!data::has_labels(s) || !s.label(0)) return "";
  const std::vector<int32_t> labels = data::labels_of(s);
  const std::set<int32_t> there(labels.begin(), labels.end());
  std::vector<std::string> missing;
  for (int64_t c = 0; c < s.classes(); ++c)
    if (there.count(static_cast<int32_t>(c)) == 0)
      missing.push_back(static_cast<int64_t>(names.size()) == s.classes()
                            ? fmt::format("{} (\"{}\")", c, names[static_cast<size_t>(c)])
                            : std::to_string(c));
  if (missing.empty()) return "";
  const size_t shown = std::min(missing.size(), kMostNamed);
  return fmt::format(
      "no sample of class {}{} in the {} set{}",
      fmt::join(missing.begin(), missing.begin() + static_cast<long>(shown), ", "),
      missing.size() > shown ? fmt::format(" and {} more", missing.size() - shown) : "", data::to_string(split),
      split == data::Split::train ? ": it cannot be learned" : ": how well it is known is not measured there");
}

std::vector<std::string> missing_classes(const Dataset& d, const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const data::Split split : {data::Split::train, data::Split::validation, data::Split::test})
    if (const data::Source* s = d.of(split))
      if (std::string missing = missing_classes(*s, split, names); !missing.empty()) out.push_back(std::move(missing));
  return out;
}

}  // namespace lathe
