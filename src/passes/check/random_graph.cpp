#include "passes/check/random_graph.h"

#include <algorithm>

#include "base/philox.h"
#include "ops/broadcast.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/grad.h"
#include "ops/matmul.h"
#include "ops/one_hot.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/slice.h"
#include "ops/softmax.h"
#include "ops/transpose.h"

namespace lathe {
namespace {

class Generator {
 public:
  Generator(uint64_t seed, const RandomGraphOptions& options)
      : options_(options), rng_(seed, 0x9A, 0, 0), b_("random") {}

  Graph run() {
    switch (options_.kind) {
      case RandomGraphKind::mixed: mixed(); break;
      case RandomGraphKind::products: products(); break;
      case RandomGraphKind::losses: custom_loss(); break;
      case RandomGraphKind::shared: shared_values(); break;
    }
    return b_.finish();
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(rng_.below(counter_++, static_cast<uint64_t>(n))); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  const T& one_of(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))];
  }
  // Recent values more often: chains grow deep.
  Value pick() {
    const int64_t n = static_cast<int64_t>(pool_.size());
    return pool_[static_cast<size_t>(chance(60) ? n - 1 - below(std::min<int64_t>(n, 5)) : below(n))];
  }
  Value pick_of(const Shape& s) {
    std::vector<Value> fitting;
    for (const Value& v : pool_)
      if (v.shape() == s) fitting.push_back(v);
    return one_of(fitting);
  }

  void mixed() {
    add_inputs();
    for (int i = 0; i < options_.nodes; ++i) {
      Origin origin(b_, "step" + std::to_string(i));
      if (const Value v = next(); v.valid() && v.shape().numel() <= 4096) pool_.push_back(v);
    }
    finish();
  }

  void add_inputs() {
    const Shape shapes[] = {{4, 6}, {6}, {4, 1}, {6, 4}, {}, {2, 3, 4}, {6, 6}};
    int i = 0;
    for (const Shape& s : shapes) {
      const bool is_param = options_.state && i % 2 == 0;
      pool_.push_back(
          b_.input({DType::f32, s}, is_param ? InputKind::param : InputKind::batch, "x" + std::to_string(i)));
      if (is_param) params_.push_back(pool_.back());
      ++i;
    }
    flag_ = b_.input({DType::b8, {}}, InputKind::step, "flag");
    bytes_ = b_.input({DType::u8, {4, 6}}, InputKind::batch, "bytes");
  }

  Value next() {
    const Value x = pick();
    const int64_t kind = below(options_.composites ? 15 : 14);
    switch (kind) {
      case 0:
      case 1:
      case 2:
        return unary(one_of<std::string>({"neg", "tanh", "sigmoid", "relu", "abs", "gelu", "silu", "sin", "square"}),
                     x);
      case 3: return binary(one_of<std::string>({"add", "mul", "sub"}), x, chance(50) ? x : pick_of(x.shape()));
      case 4: return binary(one_of<std::string>({"add", "mul", "max", "min"}), x, pick_of(x.shape()));
      case 5: return chance(50) ? x * one_of<double>({0.5, 1, -1.5, 0}) : x + one_of<double>({0, 0.25, -1});
      case 6: return with_small(x);
      case 7: return x.ndim() ? reduce(x) : exp(tanh(x));
      case 8: return matrix_product(x);
      case 9: return reshaped(x);
      case 10: return transposed(x);
      case 11: return chance(50) ? select(flag_, x, tanh(x)) : select(less(x, pick_of(x.shape())), x, -x);
      case 12: return x.ndim() ? slice_axis(x, 0, below(x.dim(0)), 1) : cast(bytes_, DType::f32) * 0.01;
      case 13: return chance(50) ? full(b_, x.type(), 0.5) * x : rsqrt(square(x) + 1.0);
      default: return x.ndim() ? softmax(x) : sigmoid(x);
    }
  }

  // With a value that broadcasts to x: a row, a column, a scalar.
  Value with_small(Value x) {
    std::vector<Value> fitting;
    for (const Value& v : pool_) {
      bool fits = v.ndim() <= x.ndim();
      for (int i = 1; fits && i <= v.ndim(); ++i) fits = v.dim(-i) == x.dim(-i) || v.dim(-i) == 1;
      if (fits) fitting.push_back(v);
    }
    return binary(one_of<std::string>({"add", "mul", "sub"}), x, one_of(fitting));
  }

  Value reduce(Value x) {
    Ints axes;
    for (int i = 0; i < x.ndim(); ++i)
      if (chance(60)) axes.push_back(i);
    if (axes.empty()) axes.push_back(x.ndim() - 1);
    const bool keep = chance(50);
    Value y = chance(70) ? reduce_mean(x, axes, keep) : reduce_max(x, axes, keep);
    // Spread over the axes again, as norms do.
    return keep && chance(60) ? x - y : y;
  }

  Value matrix_product(Value x) {
    if (x.ndim() != 2) return tanh(x);
    for (int tries = 0; tries < 6; ++tries) {
      const Value w = pick();
      if (w.ndim() != 2) continue;
      const bool ta = chance(30), tb = chance(50);
      if (x.dim(ta ? 0 : 1) != w.dim(tb ? 1 : 0)) continue;
      Value y = chance(30) ? matmul(x, transpose(w, {1, 0}), ta, !tb) : matmul(x, w, ta, tb);
      std::vector<Value> rows;
      for (const Value& v : pool_)
        if (v.ndim() == 1 && v.dim(0) == y.dim(-1)) rows.push_back(v);
      if (!rows.empty() && chance(60)) y = y + one_of(rows);
      return chance(60) ? tanh(y) : y;
    }
    return sigmoid(x);
  }

  Value reshaped(Value x) {
    const int64_t n = x.shape().numel();
    const std::vector<Shape> shapes = {
        {n}, {n, 1}, {1, n}, n % 2 == 0 ? Shape{n / 2, 2} : Shape{n}, n % 4 == 0 ? Shape{4, n / 4} : Shape{n}};
    return reshape(x, one_of(shapes));
  }

  Value transposed(Value x) {
    Ints perm;
    for (int i = 0; i < x.ndim(); ++i) perm.push_back(i);
    for (size_t i = perm.size(); i > 1; --i)
      std::swap(perm[i - 1], perm[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
    const Value y = transpose(x, perm);
    return chance(40) ? transpose(tanh(y), inverse_permutation(perm)) : y;
  }

  Value squashed_sum(Value v) { return sum_all(tanh(v)); }

  void finish() {
    const size_t first = options_.dead_code ? pool_.size() / 2 : 0;
    Value loss = squashed_sum(pool_.back());
    for (size_t i = first; i < pool_.size(); i += 3) loss = loss + squashed_sum(pool_[i]);
    b_.output(loss, OutputKind::metric, "loss");
    b_.output(pool_.back(), OutputKind::result, "last");
    b_.output(pick(), OutputKind::result, "some");
    if (params_.empty()) return;
    Values gradients;
    if (options_.gradient) {
      gradients = grad(loss, params_);
    } else {
      for (const Value& p : params_) gradients.push_back(broadcast_to(loss, p.shape()));
    }
    update_params(gradients);
  }

  void update_params(const Values& gradients) {
    Value ok = flag_;
    for (const Value& g : gradients) ok = logical_and(ok, is_finite(sum_all(square(g))));
    for (size_t i = 0; i < params_.size(); ++i) {
      const Value p = params_[i];
      const Value m = b_.input(p.type(), InputKind::optimizer, "m" + std::to_string(i));
      const Value now = m * 0.9 + gradients[i];
      const Value w = p - now * 0.1;
      b_.update(m, chance(70) ? select(ok, now, m) : now);
      const Value written = chance(70) ? select(ok, w, p) : w;
      b_.update(p, written);
      // Readers of the new value: they make their own readers wait for the write.
      if (chance(40)) b_.output(squashed_sum(written), OutputKind::metric, "new" + std::to_string(i));
    }
  }

  // ---- the other kinds

  // Without gelu, whose far negative part is all rounding in f32.
  Value activation(Value x) {
    return unary(one_of<std::string>({"tanh", "sigmoid", "relu", "mish", "silu", "sin", "cos", "erf", "square", "abs",
                                      "softplus", "neg"}),
                 x);
  }
  Value add_param(const Shape& s) {
    params_.push_back(b_.input({DType::f32, s}, InputKind::param, "w" + std::to_string(params_.size())));
    return params_.back();
  }
  void add_result(Value v) { b_.output(v, OutputKind::result, "y" + std::to_string(results_++)); }

  // The loss and its gradients as outputs, as updates, or both.
  void finish_with(Value loss) {
    b_.output(loss, OutputKind::metric, "loss");
    const Values gradients = grad(loss, params_);
    const bool update = options_.state && chance(25);
    if (!update || chance(30))
      for (const Value& g : gradients) add_result(g);
    if (!update) return;
    flag_ = b_.input({DType::b8, {}}, InputKind::step, "flag");
    update_params(gradients);
  }

  void products() {
    const Value x = add_param(one_of<Shape>({{4, 5}, {3, 8}, {2, 3, 4}}));
    Value loss;
    for (int64_t terms = 2 + below(8); terms > 0; --terms) {
      const int64_t n = x.shape().numel();
      const Shape shape = one_of<Shape>({{n}, {2, n / 2}, {n / 4, 4}, x.shape()});
      const int64_t axis = chance(70) ? 0 : -1;
      const auto reduced = [&](Value v) { return reduce_sum(reshape(v, shape), {axis}); };
      Value term = reduced(sum_of_products(x));
      if (chance(40)) {
        term = activation(term);
        term = term * activation(reduced(activation(x)));
      }
      if (chance(15)) add_result(term);
      if (chance(80)) term = activation(term);
      loss = loss.valid() ? loss + sum_all(term) : sum_all(term);
    }
    // A penalty on the gradient: derivatives of derivatives.
    if (chance(10)) loss = loss + sum_all(square(grad(loss, params_)[0])) * 0.5;
    finish_with(loss);
  }

  Value sum_of_products(Value x) {
    Value sum;
    for (int64_t terms = 1 + below(4); terms > 0; --terms) {
      Value product = activation(x);
      for (int64_t factors = 1 + below(2); factors > 0; --factors) product = product * activation(x);
      sum = sum.valid() ? sum + product : product;
    }
    return sum;
  }

  void custom_loss() {
    const int64_t batch = 3 + below(4), classes = 2 + below(4);
    Value y = b_.input({DType::f32, {batch, 5}}, InputKind::batch, "x");
    const Value t = b_.input({DType::i32, {batch}}, InputKind::batch, "t");
    for (int64_t layers = 1 + below(3); layers > 0; --layers) {
      Value z = matmul(y, add_param({y.dim(1), layers == 1 ? classes : 6}));
      if (chance(80)) z = z + add_param({z.dim(1)});
      if (layers > 1) z = activation(z);
      y = z.shape() == y.shape() && chance(40) ? y + z : z;
    }
    if (chance(30)) add_result(y);
    switch (below(6)) {
      case 0: y = softmax(y); break;
      case 1: y = log_softmax(y); break;
      case 2: y = activation(y); break;
      default: break;
    }
    Value loss;  // (batch)
    for (int64_t terms = chance(60) ? 1 : 2 + below(2); terms > 0; --terms) {
      const Value term = per_sample(y, one_hot(t, classes));
      loss = loss.valid() ? loss * 0.7 + term : term;  // equal terms must not cancel
    }
    if (chance(30)) add_result(loss);
    const Value weight = sample_weight(loss, t, classes);
    loss = loss * weight;
    if (chance(30)) add_result(loss);
    if (chance(50)) return finish_with(sum_all(loss));
    finish_with(chance(50) ? sum_all(loss) / (sum_all(square(weight)) + 1.0) : reduce_mean(loss, {0}));
  }

  Value per_sample(Value y, Value hot) {
    switch (below(9)) {
      case 0:
      case 7:
      case 8: return reduce_sum(y * hot, {1});
      case 1: return reduce_sum(square(y - hot), {1});
      case 2: return reduce_mean(activation(y) * hot, {1}) + reduce_max(y, {1});
      case 3: return reduce_sum(relu(y - reduce_sum(y * hot, {1}, true) + 0.7), {1});
      case 4: return log(reduce_sum(exp(y), {1})) - reduce_sum(y * hot, {1});
      case 5: return reduce_sum(reshape(y * activation(y), {y.dim(0), y.dim(1), 1}), {1, 2});
      default: return reduce_sum(activation(y) * (hot * 0.8 + 0.1), {1});
    }
  }

  Value sample_weight(Value loss, Value t, int64_t classes) {
    switch (below(7)) {
      case 0:
      case 1:
      case 6: return 1.0 + 39.0 * cast(t, DType::f32);
      case 2: return square(1.0 - sigmoid(loss));
      case 3: return reduce_sum(one_hot(t, classes) * b_.input({DType::f32, {classes}}, InputKind::batch, "c"), {1});
      case 4: return select(less(loss, constant_like(loss, 0.31)), loss, activation(loss));
      default: return cast(t, DType::f32) + activation(loss);
    }
  }

  // Every value has 24 elements: any two fit after a reshape.
  void shared_values() {
    const std::vector<Shape> shapes{{4, 6}, {24}, {2, 3, 4}, {6, 4}};
    Values hubs{add_param(one_of(shapes)), add_param(one_of(shapes))};
    hubs.push_back(b_.input({DType::f32, one_of(shapes)}, InputKind::batch, "x"));
    pool_ = hubs;
    for (int i = 0; i < options_.nodes; ++i) {
      Origin origin(b_, "step" + std::to_string(i));
      const Value x = chance(60) ? one_of(hubs) : pick();
      const Value other = reshape(pick(), x.shape());
      pool_.push_back(from_shared(x, other, one_of(shapes)));
      if (chance(15)) hubs.push_back(pool_.back());
      if (chance(12)) add_result(pool_.back());
    }
    Value loss = squashed_sum(pool_.back());
    for (size_t i = 0; i < pool_.size(); i += 4) loss = loss + squashed_sum(pool_[i]);
    finish_with(loss);
  }

  Value from_shared(Value x, Value other, const Shape& shape) {
    const Value a = activation(x);
    switch (below(7)) {
      case 0: return a;
      case 1: return a * other;
      case 2: return tanh(x + activation(other));
      case 3: return reshape(a, shape);
      case 4: return (x - reduce_mean(x, {-1}, true)) * other;
      case 5: return a * activation(reduce_sum(other, {0}, true) * 0.2);
      default: return (a + other) * 0.5;
    }
  }

  const RandomGraphOptions& options_;
  CounterRng rng_;
  uint64_t counter_ = 0;
  Builder b_;
  Values pool_, params_;
  int results_ = 0;
  Value flag_, bytes_;
};

}  // namespace

Graph random_graph(uint64_t seed, const RandomGraphOptions& options) { return Generator(seed, options).run(); }

std::vector<HostTensor> random_inputs(const Graph& g, uint64_t seed) {
  std::vector<HostTensor> out;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    const Input& in = g.inputs[i];
    const CounterRng rng(seed, 0x1A, static_cast<uint32_t>(i), 0);
    const TensorType& t = g.type(in.value);
    double lo = -1, hi = 1;
    if (in.kind == InputKind::optimizer) lo = 0.1;
    if (in.kind == InputKind::step) lo = 0.01, hi = 0.1;
    std::vector<double> data(static_cast<size_t>(t.numel()));
    for (size_t k = 0; k < data.size(); ++k)
      data[k] = is_float(t.dtype) ? lo + (hi - lo) * rng.uniform(k) : static_cast<double>(rng.below(k, 2));
    out.push_back({t, std::move(data)});
  }
  return out;
}

}  // namespace lathe
