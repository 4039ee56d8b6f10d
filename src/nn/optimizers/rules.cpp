#include "nn/optimizers/rules.h"

#include <cmath>

#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace lathe {

Value ParamUpdate::state(std::string_view suffix) {
  return o_.new_state({spec.name + "." + std::string(suffix),
                       spec.type,
                       InputKind::optimizer,
                       Init::constant(0),
                       spec.file,
                       {},
                       spec.name});
}

Value ParamUpdate::state(std::string_view suffix, const FileLayout& file) {
  return o_.new_state({spec.name + "." + std::string(suffix),
                       {spec.type.dtype, Shape(file.view)},
                       InputKind::optimizer,
                       Init::constant(0),
                       file,
                       {},
                       spec.name});
}

void ParamUpdate::set(Value state, Value now) { o_.b_.update(state, now); }

Value ParamUpdate::decayed() const { return decay > 0 ? p * (1.0 - lr * decay) : p; }

Value ParamUpdate::with_l2() const { return decay > 0 ? g + p * decay : g; }

Value ParamUpdate::matrix(Value x) const { return reshape(x, {p.dim(0), p.shape().numel() / p.dim(0)}); }

Value l2_norm(Value x) { return sqrt(sum_all(square(x))); }

// -expm1(z) = 2 r / (1 + r) with r = tanh(-z / 2), z = t log(beta).
Value one_minus_power(double beta, Value t) {
  const Value r = tanh(t * (-0.5 * std::log(beta)));
  return r * 2.0 / (r + 1.0);
}

}  // namespace lathe
