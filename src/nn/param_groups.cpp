#include "nn/param_groups.h"

#include <fmt/format.h>

#include <algorithm>

namespace lathe {
namespace {

bool matches_any(const ParamGroup& g, std::string_view name) {
  return std::ranges::any_of(g.match, [&](const std::string& pattern) { return glob_match(pattern, name); });
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = pattern.npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != pattern.npos) {
      // The last star takes one character more.
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Allowed ParamGroup::patterns() {
  return allow::text([](std::string_view pattern) { return !pattern.empty(); },
                     "a pattern of parameter names, or a list of them");
}

std::span<const TableType> group_tables() {
  static const TableType table[] = {{"", "settings of parameters by name", schema_of<ParamGroup>}};
  return table;
}

const ParamGroup* find_group(const Tables& groups, std::string_view name) {
  const auto found =
      std::ranges::find_if(groups, [&](const ParamSet& g) { return matches_any(g.as<ParamGroup>(), name); });
  return found == groups.end() ? nullptr : &found->as<ParamGroup>();
}

std::optional<UselessPattern> find_useless_pattern(const Tables& groups, const std::vector<std::string>& names) {
  for (size_t g = 0; g < groups.size(); ++g) {
    const ParamGroup& group = groups[g].as<ParamGroup>();
    for (size_t k = 0; k < group.match.size(); ++k) {
      const std::string& pattern = group.match[k];
      std::string taken;  // a name that it matches, but that an earlier group has
      bool used = false;
      for (const std::string& name : names) {
        if (!glob_match(pattern, name)) continue;
        if (find_group(groups, name) == &group)
          used = true;
        else
          taken = name;
      }
      if (used) continue;
      if (!taken.empty())
        return UselessPattern{g, k,
                              fmt::format("all that \"{}\" matches belongs to earlier groups, like \"{}\"; the first "
                                          "group that matches holds",
                                          pattern, taken)};
      return UselessPattern{g, k,
                            fmt::format("\"{}\" matches no parameter; there are: {}", pattern, fmt::join(names, ", "))};
    }
  }
  return std::nullopt;
}

}  // namespace lathe
