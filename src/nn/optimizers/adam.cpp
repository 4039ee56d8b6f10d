// adam, adamw, adamax, lamb: first and second moments of the gradient (Kingma and Ba, 2015).
#include "nn/optimizers/rules.h"
#include "ops/elementwise.h"

namespace lathe {

Value adam_direction(ParamUpdate& u, Value g, bool scale_by_rate) {
  const Value mean = u.state("exp_avg"), mean_square = u.state("exp_avg_sq");
  const Value m = mean * u.c.beta1 + g * (1 - u.c.beta1);
  const Value v = mean_square * u.c.beta2 + square(g) * (1 - u.c.beta2);
  // The corrections of the first steps are scalars: the rate takes that of the mean.
  const Value one = scale_by_rate ? u.lr : constant_like(u.t, 1);
  const Value rate = one / u.one_minus_power(u.c.beta1);
  const Value root = rsqrt(u.one_minus_power(u.c.beta2));
  const Value direction = rate * m / (sqrt(v) * root + u.c.eps);
  u.set(mean, m);
  u.set(mean_square, v);
  return direction;
}

Value build_adam(ParamUpdate& u) { return u.p - adam_direction(u, u.with_l2(), true); }

Value build_adamw(ParamUpdate& u) { return u.decayed() - adam_direction(u, u.g, true); }

Value build_adamax(ParamUpdate& u) {
  const Value g = u.with_l2();
  const Value mean = u.state("exp_avg"), largest = u.state("exp_inf");
  const Value m = mean * u.c.beta1 + g * (1 - u.c.beta1);
  const Value n = maximum(largest * u.c.beta2, abs(g) + u.c.eps);
  u.set(mean, m);
  u.set(largest, n);
  return u.p - u.lr / u.one_minus_power(u.c.beta1) * m / n;
}

// You et al. (2020), algorithm 2: the step of a matrix, its decay included, gets the norm of the matrix.
Value build_lamb(ParamUpdate& u) {
  Value direction = adam_direction(u, u.g, false);
  if (u.decay > 0) direction = direction + u.p * u.decay;
  if (!u.is_matrix()) return u.p - u.lr * direction;
  const Value weight = l2_norm(u.p), length = l2_norm(direction);
  const Value zero = constant_like(weight, 0);
  const Value ratio =
      select(logical_and(greater(weight, zero), greater(length, zero)), weight / length, constant_like(weight, 1));
  return u.p - u.lr * ratio * direction;
}

}  // namespace lathe
