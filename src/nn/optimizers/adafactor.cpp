// adafactor: Shazeer and Stern (2018), in PyTorch's form. Of a matrix only the means of squared rows and columns are
// kept; the learning rate is relative to the size of the weights. Tensors of more axes are matrices of axis 0 by all
// others (PyTorch factors their last two axes, which for a 3 x 3 kernel saves nothing).
#include <cmath>
#include <limits>

#include "nn/optimizers/rules.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace lathe {
namespace {

constexpr double kSmallestSquare = std::numeric_limits<float>::epsilon();  // PyTorch's eps[0]
constexpr double kSmallestScale = 1e-3;                                    // PyTorch's eps[1]
constexpr double kLongestStep = 1;                                         // PyTorch's d, in root mean squares

Value at_least(Value x, double low) { return maximum(x, constant_like(x, low)); }

Value mean_of_squares(ParamUpdate& u, Value fresh) {
  if (!u.is_matrix()) {
    const Value variance = u.state("variance");
    const Value v = variance + (square(u.g) - variance) * fresh;
    u.set(variance, v);
    return v;
  }
  const Value squares = square(u.matrix(u.g));
  const int64_t rows = squares.dim(0), columns = squares.dim(1);
  const Value row = u.state("row_var", {rows, 1}), column = u.state("col_var", {1, columns});
  const Value r = row + (reduce_mean(squares, {1}, true) - row) * fresh;
  const Value c = column + (reduce_mean(squares, {0}, true) - column) * fresh;
  u.set(row, r);
  u.set(column, c);
  return reshape(r * c / at_least(reduce_mean(r, {0}, true), kSmallestSquare), u.p.shape());
}

}  // namespace

Value build_adafactor(ParamUpdate& u) {
  const Value fresh = pow(u.t, constant_like(u.t, -u.c.decay_rate));  // weight of the newest squares
  const Value direction = u.g * rsqrt(at_least(mean_of_squares(u, fresh), kSmallestSquare * kSmallestSquare));
  const double root_count = std::sqrt(static_cast<double>(u.p.shape().numel()));
  const Value scale = at_least(l2_norm(u.p) / root_count, kSmallestScale);
  const Value rate = scale * minimum(u.lr, rsqrt(u.t));
  const Value length = at_least(l2_norm(direction) / (root_count * kLongestStep), 1);
  return u.decayed() - rate / length * direction;
}

}  // namespace lathe
