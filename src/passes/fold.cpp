#include "passes/fold.h"

#include <cmath>

#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/reduce.h"

namespace lathe {
namespace {

// The type holds v but for rounding: neither overflow nor loss to a denormal or to zero.
bool fits(DType t, double v) {
  if (std::isnan(v) || std::isinf(v)) return is_float(t);
  const double stored = round_to(t, v);
  return is_float(t) ? std::abs(stored - v) <= 1e-6 * std::abs(v) : stored == v;
}

// The constant is what a device will compute with, not what rounds to it: 16 bits are few.
bool is_stored(const Value& x, double c) {
  return !is_16bit(x.dtype()) || std::isnan(c) || round_to(x.dtype(), c) == c;
}

Value constant(const Match& m, double v) {
  // What the constant is in its type is what it will be on the device: bool and integers are exact from here on.
  return fits(m.out.dtype, v) ? full(m.b, m.out, v) : Value();
}

Value fold_elementwise(const Match& m) {
  if (!m.n.op->has(kElementwise)) return {};
  double args[3];
  Types in;
  for (size_t i = 0; i < m.x.size(); ++i) {
    const auto c = m.constant(m.x[i]);
    if (!c || !is_stored(m.x[i], *c)) return {};
    args[i] = *c;
    in.push_back(m.x[i].type());
  }
  if (m.n.is("cast")) return full(m.b, m.out, is_float(m.out.dtype) ? args[0] : round_to(m.out.dtype, args[0]));
  return constant(m, evaluate(elementwise_expr(m.n, in), {args, m.x.size()}));
}

Value fold_same(const Match& m) {
  const auto c = m.constant(m.x[0]);
  return c ? full(m.b, m.out, *c) : Value();
}

Value fold_sum(const Match& m) {
  const auto c = m.constant(m.x[0]);
  if (!c || !is_stored(m.x[0], *c)) return {};
  double count = 1;
  for (int64_t a : m.n.get<ReduceParams>().axes) count *= static_cast<double>(m.x[0].shape()[static_cast<int>(a)]);
  return constant(m, count == 0 ? 0 : *c * count);
}

constexpr Rule kFoldRules[] = {
    {"fold_broadcast", "broadcast", fold_same}, {"fold_reshape", "reshape", fold_same},
    {"fold_transpose", "transpose", fold_same}, {"fold_slice", "slice", fold_same},
    {"fold_max", "reduce_max", fold_same},      {"fold_sum", "reduce_sum", fold_sum},
    {"fold_elementwise", "", fold_elementwise},
};

}  // namespace

Graph fold(Graph g, const PassContext&) { return apply_rules(std::move(g), kFoldRules); }
std::span<const Rule> fold_rules() { return kFoldRules; }

}  // namespace lathe
