#include "nn/optimizers/rules.h"

#include <cmath>

#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace lathe {

std::string ParamUpdate::name_of(std::string_view suffix) const {
  return fmt::format("{}.{}{}", spec.name, o_.scope_, suffix);
}

Value ParamUpdate::state(std::string_view suffix) {
  return o_.new_state({name_of(suffix), spec.type, InputKind::optimizer, Init::constant(0), spec.file, {}, spec.name});
}

Value ParamUpdate::state(std::string_view suffix, const FileLayout& file) {
  return o_.new_state({name_of(suffix),
                       {spec.type.dtype, Shape(file.view)},
                       InputKind::optimizer,
                       Init::constant(0),
                       file,
                       {},
                       spec.name});
}

void ParamUpdate::set(Value state, Value now) { o_.b_.update(state, now); }

Value ParamUpdate::shared(std::string_view name, double constant, Value x, Value (*build)(double, Value)) {
  Value& known = o_.scalars_[{name, constant, x.id()}];
  if (!known.valid()) known = build(constant, x);
  return known;
}

// -expm1(z) = 2 r / (1 + r) with r = tanh(-z / 2), z = t log(beta).
Value ParamUpdate::one_minus_power(double beta) {
  return shared("one_minus_power", beta, t, [](double base, Value steps) {
    const Value r = tanh(steps * (-0.5 * std::log(base)));
    return r * 2.0 / (r + 1.0);
  });
}

Value ParamUpdate::decayed() {
  if (decay <= 0) return p;
  return p * shared("decayed", decay, lr, [](double part, Value rate) { return 1.0 - rate * part; });
}

Value ParamUpdate::with_l2() const { return decay > 0 ? g + p * decay : g; }

Value ParamUpdate::matrix(Value x) const { return reshape(x, {p.dim(0), p.shape().numel() / p.dim(0)}); }

Value l2_norm(Value x) { return sqrt(sum_all(square(x))); }

}  // namespace lathe
