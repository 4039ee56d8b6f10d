// What transformer families have in common.
#pragma once

#include <fmt/format.h>

#include "base/schema.h"

namespace lathe {

inline void check_heads(int64_t width, int64_t heads, RuleReport& report) {  // each has a part of the width
  if (width % heads != 0)
    report.fail({"heads", "width"}, fmt::format("expected a divisor of model.width = {}, got {}", width, heads));
}

}  // namespace lathe
