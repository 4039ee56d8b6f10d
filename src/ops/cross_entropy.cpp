#include "ops/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace lathe {
namespace {

void check(const char* op, const TensorType& logits, const TensorType& labels, const CrossEntropyParams& p) {
  LATHE_USER_CHECK(is_float(logits.dtype) && logits.shape.ndim() == 2 && logits.shape[1] >= 1,
                   "{}: expected float logits [batch, classes], got {}", op, to_string(logits));
  LATHE_USER_CHECK(labels == (TensorType{DType::i32, {logits.shape[0]}}), "{}: expected labels i32[{}], got {}", op,
                   logits.shape[0], to_string(labels));
  LATHE_USER_CHECK(p.smoothing >= 0 && p.smoothing <= 1, "{}: smoothing {} is outside of [0, 1]", op, p.smoothing);
}

// The parts that loss and derivative share; written alike so that cse finds them. All [B, C] or [B, 1].
struct Parts {
  Value top, e, sum, hit;
};
Parts parts(Builder& b, Value x, Value labels) {
  const Value top = reduce_max(x, {1}, true);
  const Value e = exp(x - top);
  const Value classes = iota(b, {DType::i32, {x.dim(1)}}, 0);
  return {top, e, reduce_sum(e, {1}, true), equal(classes, reshape(labels, {x.dim(0), 1}))};
}

struct CrossEntropy {
  using Params = CrossEntropyParams;
  static constexpr OpInfo info{
      .name = "cross_entropy", .doc = "loss of each sample from logits and labels", .inputs = 2};

  static Types infer(ArgTypes x, const Params& p) {
    check("cross_entropy", x[0], x[1], p);
    return {{x[0].dtype, {x[0].shape[0]}}};
  }

  static Values expand(Builder& b, ArgValues in, const Params& p) {
    const Value x = in[0];
    const Parts q = parts(b, x, in[1]);
    const Value right = reduce_sum(select(q.hit, x, constant_like(x, 0)), {1}, true);
    Value loss = q.top + log(q.sum) - right * (1 - p.smoothing);
    if (p.smoothing > 0) loss = loss - reduce_mean(x, {1}, true) * p.smoothing;
    return {reshape(loss, {x.dim(0)})};
  }

  static Values vjp(const Vjp& v, const Params& p) {
    return {cross_entropy_grad(v.dy(), v.x[0], v.x[1], p.smoothing), Value()};
  }

  static void reference(RefOuts y, RefIns in, const Params& p) {
    const int64_t classes = in[0].shape()[1];
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      const double* x = in[0].data + i * classes;
      const double top = *std::max_element(x, x + classes);
      double sum = 0, right = 0, mean = 0;
      for (int64_t c = 0; c < classes; ++c) {
        sum += std::exp(x[c] - top);
        mean += x[c] / static_cast<double>(classes);
        if (c == static_cast<int64_t>(in[1][i])) right = x[c];
      }
      y[0][i] = top + std::log(sum) - (1 - p.smoothing) * right - p.smoothing * mean;
    }
  }

  static std::vector<Sample> samples() {
    const auto s = [](const char* label, int64_t batch, int64_t classes, double smoothing) {
      return Sample{
          label,
          {{{DType::f32, {batch, classes}}, -4, 4}, {{DType::i32, {batch}}, 0, static_cast<double>(classes - 1)}},
          make_params(Params{smoothing})};
    };
    return {s("digits", 6, 10, 0), s("smooth", 5, 7, 0.1), s("long", 3, 1003, 0), s("one_class", 2, 1, 0.2),
            s("no_samples", 0, 4, 0)};
  }
};

struct CrossEntropyGrad {
  using Params = CrossEntropyParams;
  static constexpr OpInfo info{
      .name = "cross_entropy_grad", .doc = "derivative of cross_entropy by the logits", .inputs = 3};

  static Types infer(ArgTypes x, const Params& p) {
    check("cross_entropy_grad", x[1], x[2], p);
    LATHE_USER_CHECK(x[0] == (TensorType{x[1].dtype, {x[1].shape[0]}}),
                     "cross_entropy_grad: expected dlosses [{}], got {}", x[1].shape[0], to_string(x[0]));
    return {x[1]};
  }

  static Values expand(Builder& b, ArgValues in, const Params& p) {
    const Value x = in[1];
    const Parts q = parts(b, x, in[2]);
    Value d = q.e / q.sum - select(q.hit, constant_like(x, 1 - p.smoothing), constant_like(x, 0));
    if (p.smoothing > 0) d = d - p.smoothing / static_cast<double>(x.dim(1));
    return {d * reshape(in[0], {x.dim(0), 1})};
  }

  static void reference(RefOuts y, RefIns in, const Params& p) {
    const int64_t classes = in[1].shape()[1];
    for (int64_t i = 0; i < in[0].numel(); ++i) {
      const double* x = in[1].data + i * classes;
      const double top = *std::max_element(x, x + classes);
      double sum = 0;
      for (int64_t c = 0; c < classes; ++c) sum += std::exp(x[c] - top);
      for (int64_t c = 0; c < classes; ++c) {
        const double target =
            (c == static_cast<int64_t>(in[2][i]) ? 1 - p.smoothing : 0) + p.smoothing / static_cast<double>(classes);
        y[0][i * classes + c] = in[0][i] * (std::exp(x[c] - top) / sum - target);
      }
    }
  }

  static std::vector<Sample> samples() {
    auto out = CrossEntropy::samples();
    for (Sample& s : out) {
      const SampleInput losses{{DType::f32, {s.inputs[0].type.shape[0]}}};
      s.inputs.insert(s.inputs.begin(), losses);
    }
    return out;
  }
};

}  // namespace

constinit const OpDef cross_entropy_op = make_op<CrossEntropy>();
constinit const OpDef cross_entropy_grad_op = make_op<CrossEntropyGrad>();

Value cross_entropy(Value logits, Value labels, double smoothing) {
  const Value x[] = {logits, labels};
  return logits.builder().add1(cross_entropy_op, x, CrossEntropyParams{smoothing});
}

Value cross_entropy_grad(Value dlosses, Value logits, Value labels, double smoothing) {
  const Value x[] = {dlosses, logits, labels};
  return logits.builder().add1(cross_entropy_grad_op, x, CrossEntropyParams{smoothing});
}

}  // namespace lathe
