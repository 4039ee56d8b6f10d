#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace lathe {
namespace {

constexpr double kMasked = -1e30;  // finite: a difference of two masked scores is not NaN

void check(const char* op, ArgTypes heads, const AttentionParams& p) {
  for (const TensorType& t : heads)
    LATHE_USER_CHECK(is_float(t.dtype) && t.shape.ndim() == 4 && t.numel() >= 1 && t == heads[0],
                     "{}: expected q, k and v of one type [batch, heads, length, width], got {} and {}", op,
                     to_string(heads[0]), to_string(t));
  LATHE_USER_CHECK(std::isfinite(p.scale), "{}: scale {} is not finite", op, p.scale);
}

// Of lse: never 16 bits, for exp(score - lse) would lose what they cannot hold.
TensorType rows_of(const TensorType& q) { return {compute_type(q.dtype), {q.shape[0], q.shape[1], q.shape[2]}}; }

// [B, H, T, T], masked.
Value scores(Builder& b, Value q, Value k, const AttentionParams& p) {
  const Value s = matmul(q, k, false, true) * p.scale;
  if (!p.causal) return s;
  const int64_t length = q.dim(2);
  const Value seen = less_equal(iota(b, {DType::i32, {1, length}}, 1), iota(b, {DType::i32, {length, 1}}, 0));
  return select(seen, s, constant_like(s, kMasked));
}

// Probabilities from scores; forward and backward write them alike, so that cse keeps one copy.
Value probabilities(Value s, Value lse) { return exp(s - reshape(lse, s.shape().with_dim(-1, 1))); }

// Row t of the scores of one head: fills s[0 .. seen) and returns how many positions are seen.
int64_t score_row(const double* q, const double* k, int64_t t, int64_t length, int64_t width, const AttentionParams& p,
                  std::vector<double>& s) {
  const int64_t seen = p.causal ? t + 1 : length;
  for (int64_t j = 0; j < seen; ++j) {
    double dot = 0;
    for (int64_t d = 0; d < width; ++d) dot += q[t * width + d] * k[j * width + d];
    s[static_cast<size_t>(j)] = dot * p.scale;
  }
  return seen;
}

struct Attention {
  using Params = AttentionParams;
  static constexpr OpInfo info{.name = "attention",
                               .doc = "softmax(scale * q k^T) v per head; also the log-sum-exp of each row",
                               .inputs = 3,
                               .traits = kProduct};

  static Types infer(ArgTypes x, const Params& p) {
    check("attention", x, p);
    return {x[0], rows_of(x[0])};
  }

  static Values expand(Builder& b, ArgValues x, const Params& p) {
    const DType wide = compute_type(x[0].dtype());
    const Value s = scores(b, cast(x[0], wide), cast(x[1], wide), p);
    const Value top = reduce_max(s, {-1}, true);
    const Value lse = reshape(top + log(reduce_sum(exp(s - top), {-1}, true)), rows_of(x[0].type()).shape);
    return {cast(matmul(probabilities(s, lse), cast(x[2], wide)), x[2].dtype()), lse};
  }

  // lse receives a cotangent only when attention_grad, which reads it, is differentiated again.
  static Values vjp(const Vjp& v, const Params& p) {
    const Value q = v.x[0], k = v.x[1];
    Value dq, dk, dv;
    if (v.has_dy(0)) {
      const Value in[] = {v.dy(), q, k, v.x[2], v.y[0], v.y[1]};
      const Values d = v.b.add(attention_grad_op, in, make_params(p));
      dq = d[0];
      dk = d[1];
      dv = d[2];
    }
    if (v.has_dy(1)) {
      const Value wide_q = cast(q, v.y[1].dtype()), wide_k = cast(k, v.y[1].dtype());
      const Value prob = probabilities(scores(v.b, wide_q, wide_k, p), v.y[1]);
      const Value ds = prob * reshape(v.dy(1) * p.scale, prob.shape().with_dim(-1, 1));
      const Value q_part = cast(matmul(ds, wide_k), q.dtype()), k_part = cast(matmul(ds, wide_q, true), k.dtype());
      dq = dq ? dq + q_part : q_part;
      dk = dk ? dk + k_part : k_part;
    }
    return {dq, dk, dv};
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const Shape& shape = x[0].shape();
    const int64_t length = shape[2], width = shape[3];
    std::vector<double> s(static_cast<size_t>(length));
    for (int64_t head = 0; head < shape[0] * shape[1]; ++head) {
      const int64_t base = head * length * width;
      for (int64_t t = 0; t < length; ++t) {
        const int64_t seen = score_row(x[0].data + base, x[1].data + base, t, length, width, p, s);
        double top = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t j = 0; j < seen; ++j) top = std::max(top, s[static_cast<size_t>(j)]);
        for (int64_t j = 0; j < seen; ++j) sum += std::exp(s[static_cast<size_t>(j)] - top);
        const double lse = top + std::log(sum);
        y[1][head * length + t] = lse;
        for (int64_t d = 0; d < width; ++d) {
          double mean = 0;
          for (int64_t j = 0; j < seen; ++j)
            mean += std::exp(s[static_cast<size_t>(j)] - lse) * x[2][base + j * width + d];
          y[0][base + t * width + d] = mean;
        }
      }
    }
  }

  static std::vector<Sample> samples() {
    const auto s = [](const char* label, Shape q, bool causal, double scale) {
      const SampleInput in{{DType::f32, q}};
      return Sample{label, {in, in, in}, make_params(Params{causal, scale})};
    };
    return {s("small", {2, 3, 5, 4}, false, 0.5),  s("causal", {2, 2, 7, 4}, true, 0.5),
            s("one_token", {1, 2, 1, 3}, true, 1), s("long", {1, 1, 70, 8}, true, 0.35),
            s("wide", {1, 2, 9, 33}, false, 0.17), s("wider", {1, 2, 20, 72}, true, 0.12)};
  }
};

struct AttentionGrad {
  using Params = AttentionParams;
  static constexpr OpInfo info{.name = "attention_grad", .doc = "derivatives of attention by q, k and v", .inputs = 6};

  static Types infer(ArgTypes x, const Params& p) {
    check("attention_grad", x.first(5), p);
    LATHE_USER_CHECK(x[5] == rows_of(x[1]), "attention_grad: expected lse {}, got {}", to_string(rows_of(x[1])),
                     to_string(x[5]));
    return {x[1], x[2], x[3]};
  }

  static Values expand(Builder& b, ArgValues x, const Params& p) {
    const DType given = x[1].dtype(), wide = compute_type(given);
    const Value dy = cast(x[0], wide), q = cast(x[1], wide), k = cast(x[2], wide), v = cast(x[3], wide),
                y = cast(x[4], wide);
    const Value prob = probabilities(scores(b, q, k, p), x[5]);
    const Value dprob = matmul(dy, v, false, true);
    const Value ds = prob * (dprob - reduce_sum(dy * y, {-1}, true)) * p.scale;
    return {cast(matmul(ds, k), given), cast(matmul(ds, q, true), given), cast(matmul(prob, dy, true), given)};
  }

  static void reference(RefOuts out, RefIns x, const Params& p) {
    const RefTensor &dy = x[0], &q = x[1], &k = x[2], &v = x[3], &y = x[4], &lse = x[5];
    const int64_t length = q.shape()[2], width = q.shape()[3];
    for (const RefTensor& t : out) std::fill_n(t.data, t.numel(), 0.0);
    std::vector<double> s(static_cast<size_t>(length));
    for (int64_t head = 0; head < lse.numel() / length; ++head) {
      const int64_t base = head * length * width;
      for (int64_t t = 0; t < length; ++t) {
        const int64_t seen = score_row(q.data + base, k.data + base, t, length, width, p, s), row = base + t * width;
        double mean = 0;
        for (int64_t d = 0; d < width; ++d) mean += dy[row + d] * y[row + d];
        for (int64_t j = 0; j < seen; ++j) {
          const int64_t other = base + j * width;
          const double prob = std::exp(s[static_cast<size_t>(j)] - lse[head * length + t]);
          double dprob = 0;
          for (int64_t d = 0; d < width; ++d) dprob += dy[row + d] * v[other + d];
          const double ds = prob * (dprob - mean) * p.scale;
          for (int64_t d = 0; d < width; ++d) {
            out[0][row + d] += ds * k[other + d];
            out[1][other + d] += ds * q[row + d];
            out[2][other + d] += prob * dy[row + d];
          }
        }
      }
    }
  }

  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    for (const Sample& s : Attention::samples()) {
      const SampleInput in = s.inputs[0];
      out.push_back({s.label, {in, in, in, in, in, {rows_of(in.type), 2, 4}}, s.params});
    }
    const SampleInput half{{DType::f16, {1, 2, 9, 16}}};
    out.push_back({"f16", {half, half, half, half, half, {rows_of(half.type), 2, 4}}, make_params(Params{true, 0.25})});
    return out;
  }
};

}  // namespace

constinit const OpDef attention_op = make_op<Attention>();
constinit const OpDef attention_grad_op = make_op<AttentionGrad>();

Value attention(Value q, Value k, Value v, bool causal, double scale) {
  const Value x[] = {q, k, v};
  return q.builder().add1(attention_op, x, AttentionParams{causal, scale});
}

Value attention(Value q, Value k, Value v, bool causal) {
  return attention(q, k, v, causal, 1.0 / std::sqrt(static_cast<double>(q.dim(-1))));
}

}  // namespace lathe
