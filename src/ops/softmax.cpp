#include "ops/softmax.h"

#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace lathe {
namespace {

Types infer_rows(const char* op, ArgTypes x) {
  for (const TensorType& t : x)
    LATHE_USER_CHECK(is_float(t.dtype) && t.shape.ndim() >= 1 && t.shape.dim(-1) >= 1 && t == x[0],
                     "{}: expected floats with a last axis that is not empty, got {}{}", op, to_string(t),
                     t == x[0] ? "" : " and " + to_string(x[0]));
  return {x[0]};
}

// Calls f(first element of the row, length) for every row of the last axis.
template <class F>
void for_each_row(const Shape& s, F&& f) {
  const int64_t n = s.dim(-1);
  for (int64_t at = 0; at < s.numel(); at += n) f(at, n);
}

double log_sum_exp(const double* x, int64_t n) {
  const double top = *std::max_element(x, x + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - top);
  return top + std::log(sum);
}

std::vector<Sample> row_samples(int inputs, double lo, double hi) {
  std::vector<Sample> out;
  const auto add = [&](const char* label, Shape s) {
    out.push_back({label, {}, make_params(NoParams{})});
    for (int i = 0; i < inputs; ++i) out.back().inputs.push_back({{DType::f32, s}, lo, hi});
  };
  add("matrix", {5, 10});
  add("vector", {7});
  add("heads", {2, 3, 4, 9});
  add("one", {4, 1});
  add("long", {2, 1000});
  add("no_rows", {0, 4});
  return out;
}

struct Softmax {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "softmax", .doc = "exp(x) / sum(exp(x)) over the last axis", .inputs = 1};
  static Types infer(ArgTypes x, const Params&) { return infer_rows("softmax", x); }
  static Values expand(Builder&, ArgValues x, const Params&) {
    const Value e = exp(x[0] - reduce_max(x[0], {-1}, true));
    return {e / reduce_sum(e, {-1}, true)};
  }
  static Values vjp(const Vjp& v, const Params&) { return {softmax_grad(v.dy(), v.y[0])}; }
  static void reference(RefOuts y, RefIns x, const Params&) {
    for_each_row(x[0].shape(), [&](int64_t at, int64_t n) {
      const double lse = log_sum_exp(&x[0][at], n);
      for (int64_t i = at; i < at + n; ++i) y[0][i] = std::exp(x[0][i] - lse);
    });
  }
  static std::vector<Sample> samples() { return row_samples(1, -4, 4); }
};

struct LogSoftmax {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "log_softmax", .doc = "x - log(sum(exp(x))) over the last axis", .inputs = 1};
  static Types infer(ArgTypes x, const Params&) { return infer_rows("log_softmax", x); }
  static Values expand(Builder&, ArgValues x, const Params&) {
    const Value shifted = x[0] - reduce_max(x[0], {-1}, true);
    return {shifted - log(reduce_sum(exp(shifted), {-1}, true))};
  }
  static Values vjp(const Vjp& v, const Params&) { return {log_softmax_grad(v.dy(), v.y[0])}; }
  static void reference(RefOuts y, RefIns x, const Params&) {
    for_each_row(x[0].shape(), [&](int64_t at, int64_t n) {
      const double lse = log_sum_exp(&x[0][at], n);
      for (int64_t i = at; i < at + n; ++i) y[0][i] = x[0][i] - lse;
    });
  }
  static std::vector<Sample> samples() { return row_samples(1, -4, 4); }
};

struct SoftmaxGrad {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "softmax_grad", .doc = "derivative of softmax from dy and y", .inputs = 2};
  static Types infer(ArgTypes x, const Params&) { return infer_rows("softmax_grad", x); }
  static Values expand(Builder&, ArgValues x, const Params&) {
    return {x[1] * (x[0] - reduce_sum(x[0] * x[1], {-1}, true))};
  }
  static void reference(RefOuts out, RefIns x, const Params&) {
    for_each_row(x[0].shape(), [&](int64_t at, int64_t n) {
      double dot = 0;
      for (int64_t i = at; i < at + n; ++i) dot += x[0][i] * x[1][i];
      for (int64_t i = at; i < at + n; ++i) out[0][i] = x[1][i] * (x[0][i] - dot);
    });
  }
  static std::vector<Sample> samples() { return row_samples(2, -1, 1); }
};

struct LogSoftmaxGrad {
  using Params = NoParams;
  static constexpr OpInfo info{
      .name = "log_softmax_grad", .doc = "derivative of log_softmax from dy and y", .inputs = 2};
  static Types infer(ArgTypes x, const Params&) { return infer_rows("log_softmax_grad", x); }
  static Values expand(Builder&, ArgValues x, const Params&) {
    return {x[0] - exp(x[1]) * reduce_sum(x[0], {-1}, true)};
  }
  static void reference(RefOuts out, RefIns x, const Params&) {
    for_each_row(x[0].shape(), [&](int64_t at, int64_t n) {
      double sum = 0;
      for (int64_t i = at; i < at + n; ++i) sum += x[0][i];
      for (int64_t i = at; i < at + n; ++i) out[0][i] = x[0][i] - std::exp(x[1][i]) * sum;
    });
  }
  static std::vector<Sample> samples() { return row_samples(2, -3, 0); }
};

Value add_one(const OpDef& op, Value x) { return x.builder().add1(op, std::span(&x, 1), NoParams{}); }
Value add_two(const OpDef& op, Value a, Value b) {
  const Value x[] = {a, b};
  return a.builder().add1(op, x, NoParams{});
}

}  // namespace

constinit const OpDef softmax_op = make_op<Softmax>();
constinit const OpDef log_softmax_op = make_op<LogSoftmax>();
constinit const OpDef softmax_grad_op = make_op<SoftmaxGrad>();
constinit const OpDef log_softmax_grad_op = make_op<LogSoftmaxGrad>();

Value softmax(Value x) { return add_one(softmax_op, x); }
Value log_softmax(Value x) { return add_one(log_softmax_op, x); }
Value softmax_grad(Value dy, Value y) { return add_two(softmax_grad_op, dy, y); }
Value log_softmax_grad(Value dy, Value y) { return add_two(log_softmax_grad_op, dy, y); }

}  // namespace lathe
