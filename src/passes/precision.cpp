#include "passes/precision.h"

#include <algorithm>

#include "ir/rewrite.h"
#include "ops/cast.h"

namespace lathe {
namespace {

constexpr std::string_view kProducts[] = {"matmul", "conv2d", "attention"};

bool is_product(const Graph& g, const Node& n) {
  return std::ranges::find(kProducts, n.op->name()) != std::end(kProducts) &&
         std::ranges::all_of(n.inputs, [&](ValueId v) { return g.type(v).dtype == DType::f32; });
}

}  // namespace

Graph precision(Graph g, const PassContext& context) {
  const DType t = context.precision;
  if (t == DType::f32 || std::ranges::none_of(g.nodes, [&](const Node& n) { return is_product(g, n); })) return g;
  LATHE_CHECK(is_16bit(t), "{}", to_string(t));
  return rebuild(g, [&](Rebuild& r, const Node& n) -> std::optional<Values> {
    if (!is_product(g, n)) return std::nullopt;
    Builder& b = r.builder();
    Values in = r.mapped(n.inputs);
    // A value that several products read is cast for each: cse keeps one of the casts.
    for (Value& x : in) x = cast(x, t);
    Values out = b.add(*n.op, in, n.params);
    for (Value& y : out) y = cast(y, DType::f32);
    return out;
  });
}

}  // namespace lathe
