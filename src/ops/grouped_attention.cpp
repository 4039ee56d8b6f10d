#include "ops/grouped_attention.h"

#include <algorithm>
#include <cmath>

#include "ops/broadcast.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/matmul.h"
#include "ops/reshape.h"
#include "ops/softmax.h"
#include "ops/tile.h"

namespace lathe {
namespace {

constexpr double kUnseen = -1e30;  // finite: a difference of two of them is not NaN

Types infer_heads(const char* op, ArgTypes x, const AttentionParams& p) {
  for (const TensorType& t : x.first(3))
    LATHE_USER_CHECK(is_float(t.dtype) && t.dtype == x[0].dtype && t.shape.ndim() == 4 && t.numel() >= 1,
                     "{}: expected q, k and v [batch, heads, length, width] of one type, got {} and {}", op,
                     to_string(x[0]), to_string(t));
  const Shape &q = x[0].shape, &k = x[1].shape, &v = x[2].shape;
  LATHE_USER_CHECK(q[0] == k[0] && k[0] == v[0] && k[1] == v[1] && k[2] == v[2] && q[3] == k[3] && q[1] % k[1] == 0,
                   "{}: q {}, k {} and v {} do not fit", op, to_string(q), to_string(k), to_string(v));
  LATHE_USER_CHECK(!p.causal || q[2] <= k[2], "{}: causal, and {} queries after {} keys", op, q[2], k[2]);
  LATHE_USER_CHECK(std::isfinite(p.scale), "{}: scale {} is not finite", op, p.scale);
  return {{x[0].dtype, {q[0], q[1], q[2], v[3]}}};
}

Value attend(Builder& b, ArgValues x, const AttentionParams& p) {
  const Value q = x[0];
  const int64_t share = q.dim(1) / x[1].dim(1), length = q.dim(2), keys = x[1].dim(2);
  const Value k = share == 1 ? x[1] : repeat(x[1], 1, share), v = share == 1 ? x[2] : repeat(x[2], 1, share);
  if (x.size() == 3 && k.type() == q.type() && v.type() == q.type()) return attention(q, k, v, p.causal, p.scale);
  Value s = matmul(q, k, false, true) * p.scale, seen;
  if (x.size() == 4) seen = broadcast_to(x[3], s.shape());
  if (p.causal) {
    const Value last = iota(b, {DType::i32, {length, 1}}, 0) + static_cast<double>(keys - length);
    const Value earlier = broadcast_to(less_equal(iota(b, {DType::i32, {1, keys}}, 1), last), s.shape());
    seen = seen ? logical_and(seen, earlier) : earlier;
  }
  if (seen) s = select(seen, s, constant_like(s, kUnseen));
  Value share_of = softmax(s);
  if (x.size() == 4) share_of = select(seen, share_of, constant_like(s, 0));  // a row may see nothing at all
  return matmul(share_of, v);
}

void attend_reference(RefOuts y, RefIns x, const AttentionParams& p) {
  const Shape &q = x[0].shape(), &k = x[1].shape(), &v = x[2].shape();
  const int64_t heads = q[1], length = q[2], width = q[3], keys = k[2], out = v[3], share = heads / k[1];
  std::vector<double> s(static_cast<size_t>(keys));
  const auto seen = [&](int64_t n, int64_t h, int64_t t, int64_t j) {
    if (p.causal && j > t + keys - length) return false;
    if (x.size() < 4) return true;
    const Shape& m = x[3].shape();
    const int64_t at = (((m[0] > 1 ? n : 0) * m[1] + (m[1] > 1 ? h : 0)) * m[2] + (m[2] > 1 ? t : 0)) * m[3];
    return x[3][at + (m[3] > 1 ? j : 0)] != 0;
  };
  for (int64_t i = 0; i < y[0].numel() / out; ++i) {
    const int64_t t = i % length, h = i / length % heads, n = i / length / heads, kv = n * k[1] + h / share;
    for (int64_t j = 0; j < keys; ++j) {
      double dot = 0;
      for (int64_t d = 0; d < width; ++d) dot += x[0][i * width + d] * x[1][(kv * keys + j) * width + d];
      s[static_cast<size_t>(j)] = seen(n, h, t, j) ? dot * p.scale : kUnseen;
    }
    const double top = *std::ranges::max_element(s);
    double sum = 0;
    for (double& e : s) {
      e = e == kUnseen ? 0 : std::exp(e - top);
      sum += e;
    }
    if (sum == 0) sum = 1;
    for (int64_t d = 0; d < out; ++d) {
      double mean = 0;
      for (int64_t j = 0; j < keys; ++j) mean += s[static_cast<size_t>(j)] / sum * x[2][(kv * keys + j) * out + d];
      y[0][i * out + d] = mean;
    }
  }
}

struct GroupedAttention {
  using Params = AttentionParams;
  static constexpr OpInfo info{
      .name = "grouped_attention", .doc = "attention with fewer heads, or another length, of k and v", .inputs = 3};
  static Types infer(ArgTypes x, const Params& p) { return infer_heads("grouped_attention", x, p); }
  static Values expand(Builder& b, ArgValues x, const Params& p) { return {attend(b, x, p)}; }
  static void reference(RefOuts y, RefIns x, const Params& p) { attend_reference(y, x, p); }
  static std::vector<Sample> samples() {
    const auto s = [](const char* label, Shape q, Shape k, Shape v, Params p) {
      return Sample{label, {{{DType::f32, q}}, {{DType::f32, k}}, {{DType::f32, v}}}, make_params(p)};
    };
    return {s("grouped", {1, 4, 5, 4}, {1, 2, 5, 4}, {1, 2, 5, 4}, {true, 0.5}),
            s("cached", {1, 2, 2, 4}, {1, 1, 5, 4}, {1, 1, 5, 3}, {true, 0.5})};
  }
};

struct MaskedAttention {
  using Params = AttentionParams;
  static constexpr OpInfo info{
      .name = "masked_attention", .doc = "grouped_attention to the positions that a mask allows", .inputs = 4};
  static Types infer(ArgTypes x, const Params& p) {
    const Types out = infer_heads("masked_attention", x, p);
    const Shape scores{x[0].shape[0], x[0].shape[1], x[0].shape[2], x[1].shape[2]};
    LATHE_USER_CHECK(x[3].dtype == DType::b8 && x[3].shape.ndim() == 4 && broadcast_shape(x[3].shape, scores) == scores,
                     "masked_attention: expected a mask bool{}, got {}", to_string(scores), to_string(x[3]));
    return out;
  }
  static Values expand(Builder& b, ArgValues x, const Params& p) { return {attend(b, x, p)}; }
  static void reference(RefOuts y, RefIns x, const Params& p) { attend_reference(y, x, p); }
  static std::vector<Sample> samples() {
    const auto s = [](const char* label, Shape q, Shape k, Shape mask, Params p) {
      return Sample{
          label, {{{DType::f32, q}}, {{DType::f32, k}}, {{DType::f32, k}}, {{DType::b8, mask}, 0, 1}}, make_params(p)};
    };
    return {s("mask", {2, 2, 3, 4}, {2, 2, 5, 4}, {2, 1, 3, 5}, {false, 0.5}),
            s("causal", {1, 2, 4, 4}, {1, 1, 4, 4}, {1, 1, 1, 4}, {true, 0.5})};
  }
};

}  // namespace

constinit const OpDef grouped_attention_op = make_op<GroupedAttention>();
constinit const OpDef masked_attention_op = make_op<MaskedAttention>();

Value grouped_attention(Value q, Value k, Value v, bool causal, double scale) {
  const Value x[] = {q, k, v};
  return q.builder().add1(grouped_attention_op, x, AttentionParams{causal, scale});
}
Value masked_attention(Value q, Value k, Value v, Value mask, bool causal, double scale) {
  const Value x[] = {q, k, v, mask};
  return q.builder().add1(masked_attention_op, x, AttentionParams{causal, scale});
}

}  // namespace lathe
