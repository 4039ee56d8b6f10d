// adafactor: Shazeer and Stern (2018), in PyTorch's form. Of a matrix only the means of squared rows and columns are
// kept; the learning rate is relative to the size of the weights. Of more axes the last two are rows and columns, as
// PyTorch orders them: of a convolution each kernel is a matrix.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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

// The tensor with axes that can be reduced: `rows` and `columns` are the last two of PyTorch's order.
struct FactoredView {
  FileLayout file;  // never plain
  Ints rows, columns;

  explicit FactoredView(const ParamUpdate& u) : file(u.spec.file) {
    if (file.plain()) {
      const Shape shape = u.p.shape();
      file.view = file.shape = Ints(shape.dims().begin(), shape.dims().end());
      file.perm.resize(file.view.size());
      std::iota(file.perm.begin(), file.perm.end(), 0);
    }
    size_t end = file.perm.size();
    // An axis of the file may be several of memory: a dense layer's weight over an image.
    const auto take = [&](int64_t size) {
      Ints axes;
      for (int64_t count = 0; end > 0 && count != size;) {
        axes.push_back(file.perm[--end]);
        count = std::max<int64_t>(count, 1) * file.view[static_cast<size_t>(axes.back())];
      }
      std::sort(axes.begin(), axes.end());
      return axes;
    };
    columns = take(file.shape.back());
    rows = take(file.shape[file.shape.size() - 2]);
  }

  // The layout of the means over some axes, of which `of_file` is the one in files.
  FileLayout without(const Ints& axes, size_t of_file) const {
    FileLayout out = file;
    for (const int64_t axis : axes) out.view[static_cast<size_t>(axis)] = 1;
    out.shape[of_file] = 1;
    return out;
  }
};

Value mean_of_squares(ParamUpdate& u, Value fresh) {
  if (!u.is_matrix()) {
    const Value variance = u.state("variance");
    const Value v = variance + (square(u.g) - variance) * fresh;
    u.set(variance, v);
    return v;
  }
  const FactoredView view(u);
  const size_t ndim = view.file.shape.size();
  const Value squares = square(reshape(u.g, Shape(view.file.view)));
  const Value row = u.state("row_var", view.without(view.columns, ndim - 1)),
              column = u.state("col_var", view.without(view.rows, ndim - 2));
  const Value r = row + (reduce_mean(squares, view.columns, true) - row) * fresh;
  const Value c = column + (reduce_mean(squares, view.rows, true) - column) * fresh;
  u.set(row, r);
  u.set(column, c);
  return reshape(r * c / at_least(reduce_mean(r, view.rows, true), kSmallestSquare), u.p.shape());
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
