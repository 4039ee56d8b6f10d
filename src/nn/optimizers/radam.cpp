// radam: Adam whose first steps, while the mean square rests on few gradients, are those of momentum (Liu et al.,
// 2020).
#include <cmath>

#include "nn/optimizers/rules.h"
#include "ops/elementwise.h"

namespace lathe {
namespace {

// How many gradients the mean square rests on: rho = limit - 2 t b^t / (1 - b^t), from 1 at t = 1 to the limit. For
// small t both terms are near 2 / (1 - b) and f32 would lose four digits of the difference. With r = log(1 / b) and
// z = r t / 2 it is t + (limit - 2 / r) - 2 / r (z coth z - 1), whose bracket is summed as a series below z = 1/2.
Value effective_steps(ParamUpdate& u, double limit) {
  const double r = -std::log(u.c.beta2);
  const Value z = u.t * (r / 2), z2 = square(z);
  Value series = constant_like(z, 2.0 / 93555);
  for (const double c : {-1.0 / 4725, 2.0 / 945, -1.0 / 45, 1.0 / 3}) series = series * z2 + c;
  const Value early = u.t + (limit - 2 / r) - series * z2 * (2 / r);
  const Value late = limit - u.t * 2.0 * (1.0 / u.one_minus_power(u.c.beta2) - 1.0);
  return select(less(z, constant_like(z, 0.5)), early, late);
}

}  // namespace

Value build_radam(ParamUpdate& u) {
  const Value g = u.with_l2();
  const Value mean = u.state("exp_avg"), mean_square = u.state("exp_avg_sq");
  const Value m = mean * u.c.beta1 + g * (1 - u.c.beta1);
  const Value v = mean_square * u.c.beta2 + square(g) * (1 - u.c.beta2);
  u.set(mean, m);
  u.set(mean_square, v);
  const Value step = u.lr / u.one_minus_power(u.c.beta1) * m;
  const double limit = 2 / (1 - u.c.beta2) - 1;
  if (limit <= 5) return u.p - step;  // it never rests on enough
  const Value rho = effective_steps(u, limit), zero = constant_like(rho, 0);
  const Value enough = greater(rho, constant_like(rho, 5));
  const Value part = (rho - 4.0) * (rho - 2.0) / rho * (limit / ((limit - 4) * (limit - 2)));
  const Value rectified = select(enough, sqrt(maximum(part, zero) * u.one_minus_power(u.c.beta2)), zero);
  const Value plain = select(enough, zero, constant_like(rho, 1));
  return u.p - step * (rectified / (sqrt(v) + u.c.eps) + plain);
}

}  // namespace lathe
