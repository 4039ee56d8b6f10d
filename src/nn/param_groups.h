// Parameter groups: settings for the parameters whose names match a pattern. The first group that matches a name holds.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/schema.h"
#include "nn/net.h"

namespace lathe {

struct ParamGroup {                    // One of [[optimizer.groups]].
  Strings match;                       // globs: '*' any characters, '?' one
  double lr_scale = 1;                 // times the schedule's learning rate
  std::optional<double> weight_decay;  // instead of the optimizer's, on tensors of any number of axes
  bool frozen = false;                 // not trained: no gradient, no moments
  template <class F>
  static void fields(F&& f) {  // keys of recipes
    f("match", &ParamGroup::match, allow::required(allow::list(patterns(), 1, 1000)),
      "which parameters the group is for");
    f("lr_scale", &ParamGroup::lr_scale, allow::above(0, 1e6), "factor of the learning rate");
    f("weight_decay", &ParamGroup::weight_decay, allow::range(0, 1e3), "instead of the optimizer's");
    f("frozen", &ParamGroup::frozen, "not trained");
  }
  static Allowed patterns();  // of names
};
std::span<const TableType> group_tables();  // the type of optimizer.groups

bool glob_match(std::string_view pattern, std::string_view name);  // whether all of the name matches

// The group of a parameter, or null.
const ParamGroup* find_group(const Tables& groups, std::string_view name);

// A pattern that takes effect on no parameter: its group, its place in `match`, and the reason in words.
struct UselessPattern {
  size_t group = 0, pattern = 0;  // their places
  std::string reason;             // in words
};
std::optional<UselessPattern> find_useless_pattern(const Tables& groups,  // the first, if any
                                                   const std::vector<std::string>& names);

}  // namespace lathe
