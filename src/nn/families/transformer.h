// What transformer families have in common.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "base/schema.h"

namespace lathe {

inline void check_heads(int64_t width, int64_t heads, RuleReport& report) {  // each has a part of the width
  if (width % heads != 0)
    report.fail({"heads", "width"}, fmt::format("expected a divisor of model.width = {}, got {}", width, heads));
}

template <class Params>
void shrink_blocks(Params& p) {  // for tiny twins
  p.layers = std::min<int64_t>(p.layers, 2);
  p.heads = std::min<int64_t>(p.heads, 2);
  p.width = 4 * p.heads;
  p.feed_forward = std::min<int64_t>(p.feed_forward, 16);
}

}  // namespace lathe
