// What transformer families have in common.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "base/schema.h"

namespace lathe {

struct TransformerParams {  // Of stacks of attention blocks; families have them as a base.
  double dropout = 0;
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;
  int64_t feed_forward = 0;
  template <class F>
  static void fields(
      F&& f, std::string_view feed_forward_help = "width inside of the feed-forward layers; 0: 4 times model.width") {
    using P = TransformerParams;
    f("dropout", &P::dropout, allow::below(0, 1), "part of activations dropped while training");
    f("layers", &P::layers, allow::range(1, 4096), "number of blocks");
    f("heads", &P::heads, allow::range(1, 1024), "attention heads; must divide model.width");
    f("width", &P::width, allow::range(1, 1 << 20), "width of the residual stream");
    f("feed_forward", &P::feed_forward, allow::range(0, 1 << 20), feed_forward_help);
  }
};

inline void check_heads(int64_t width, int64_t heads, RuleReport& report) {  // each has a part of the width
  if (width % heads != 0)
    report.fail({"heads", "width"}, fmt::format("expected a divisor of model.width = {}, got {}", width, heads));
}

inline void shrink_blocks(TransformerParams& p) {  // for tiny twins
  p.layers = std::min<int64_t>(p.layers, 2);
  p.heads = std::min<int64_t>(p.heads, 2);
  p.width = 4 * p.heads;
  p.feed_forward = std::min<int64_t>(p.feed_forward, 16);
}

}  // namespace lathe
