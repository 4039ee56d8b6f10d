#include "passes/layout.h"

#include <algorithm>

#include "ops/full.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/transpose.h"

namespace lathe {
namespace {

Ints perm_of(const Match& m, Value v) { return m.params<TransposeParams>(v).perm; }

bool swaps_last_two(const Ints& perm) {
  const size_t n = perm.size();
  if (n < 2 || perm[n - 1] != static_cast<int64_t>(n) - 2 || perm[n - 2] != static_cast<int64_t>(n) - 1) return false;
  return std::is_sorted(perm.begin(), perm.end() - 2);
}

Value transpose_of_transpose(const Match& m) {
  if (!m.is(m.x[0], "transpose")) return {};
  const Ints inner = perm_of(m, m.x[0]);
  Ints both;
  for (int64_t a : m.n.get<TransposeParams>().perm) both.push_back(inner[static_cast<size_t>(a)]);
  return transpose(m.arg(m.x[0]), both);
}

Value transpose_same(const Match& m) {
  return std::ranges::is_sorted(m.n.get<TransposeParams>().perm) ? m.x[0] : Value();
}

// Axes longer than 1 keep their order: the elements do too.
Value transpose_to_reshape(const Match& m) {
  int64_t last = -1;
  for (int64_t a : m.n.get<TransposeParams>().perm) {
    if (m.x[0].shape()[static_cast<int>(a)] == 1) continue;
    if (a < last) return {};
    last = a;
  }
  return reshape(m.x[0], m.out.shape);
}

Value matmul_of_transpose(const Match& m) {
  MatmulParams p = m.n.get<MatmulParams>();
  Value a = m.x[0], b = m.x[1];
  bool any = false;
  for (auto [v, flag] : {std::pair(&a, &p.trans_a), std::pair(&b, &p.trans_b)})
    if (m.is(*v, "transpose") && swaps_last_two(perm_of(m, *v))) {
      *v = m.arg(*v);
      *flag = !*flag;
      any = true;
    }
  return any ? matmul(a, b, p.trans_a, p.trans_b) : Value();
}

// (A B)^T = B^T A^T; each element is the same sum in the same order.
Value transpose_of_matmul(const Match& m) {
  if (!m.is(m.x[0], "matmul") || !m.only_use(m.x[0]) || !swaps_last_two(m.n.get<TransposeParams>().perm)) return {};
  const MatmulParams p = m.params<MatmulParams>(m.x[0]);
  const Value a = m.arg(m.x[0], 0), b = m.arg(m.x[0], 1);
  return matmul(b, a, !p.trans_b, !p.trans_a);
}

// op(transpose(a), transpose(b), constant) -> transpose(op(a, b, constant)), where that drops a transpose or keeps
// their number.
Value sink_transpose(const Match& m) {
  if (!m.n.op->has(kElementwise)) return {};
  const auto it = std::ranges::find_if(m.x, [&](const Value& v) { return m.is(v, "transpose"); });
  if (it == m.x.end()) return {};
  const Ints perm = perm_of(m, *it);
  const Shape inner = m.arg(*it).shape();
  Values args;
  for (const Value& v : m.x) {
    if (m.is(v, "transpose") && perm_of(m, v) == perm && m.only_use(v)) {
      args.push_back(m.arg(v));
    } else if (const auto c = m.constant(v)) {
      args.push_back(full(m.b, {v.dtype(), inner}, *c));
    } else {
      return {};
    }
  }
  return transpose(m.b.add(*m.n.op, args, m.n.params)[0], perm);
}

// Where the kept axes and the reduced axes each stay in order, the sum runs over the same elements in the same order.
Value reduce_of_transpose(const Match& m) {
  if (!m.is(m.x[0], "transpose")) return {};
  const Ints perm = perm_of(m, m.x[0]);
  const auto& [axes, keep_dims] = m.n.get<ReduceParams>();
  Ints reduced, kept;
  for (size_t i = 0; i < perm.size(); ++i)
    (std::ranges::binary_search(axes, static_cast<int64_t>(i)) ? reduced : kept).push_back(perm[i]);
  if (!std::ranges::is_sorted(reduced) || !std::ranges::is_sorted(kept)) return {};
  const Value x = m.arg(m.x[0]);
  const Value y = m.b.add1(*m.n.op, std::span(&x, 1), ReduceParams{reduced, keep_dims});
  return reshape(y, m.out.shape);
}

constexpr Rule kLayoutRules[] = {
    {"transpose_same", "transpose", transpose_same},
    {"transpose_transpose", "transpose", transpose_of_transpose},
    {"transpose_to_reshape", "transpose", transpose_to_reshape},
    {"transpose_matmul", "transpose", transpose_of_matmul},
    {"matmul_transpose", "matmul", matmul_of_transpose},
    {"reduce_sum_transpose", "reduce_sum", reduce_of_transpose},
    {"reduce_max_transpose", "reduce_max", reduce_of_transpose},
    {"sink_transpose", "", sink_transpose},
};

}  // namespace

Graph layout(Graph g, const PassContext&) { return apply_rules(std::move(g), kLayoutRules); }
std::span<const Rule> layout_rules() { return kLayoutRules; }

}  // namespace lathe
