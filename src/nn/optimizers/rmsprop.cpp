// rmsprop: the gradient over the root of its mean square (Hinton, 2012), in PyTorch's form.
#include "nn/optimizers/rules.h"
#include "ops/elementwise.h"

namespace lathe {

Value build_rmsprop(ParamUpdate& u) {
  const Value g = u.with_l2();
  const Value mean_square = u.state("square_avg");
  const Value v = mean_square * u.c.beta2 + square(g) * (1 - u.c.beta2);
  u.set(mean_square, v);
  Value variance = v;
  if (u.c.centered) {
    const Value mean = u.state("grad_avg");
    const Value m = mean * u.c.beta2 + g * (1 - u.c.beta2);
    u.set(mean, m);
    // Rounding can take the difference below zero.
    variance = maximum(v - square(m), constant_like(v, 0));
  }
  Value direction = g / (sqrt(variance) + u.c.eps);
  if (u.c.momentum > 0) {
    const Value buffer = u.state("momentum_buffer");
    direction = buffer * u.c.momentum + direction;
    u.set(buffer, direction);
  }
  return u.p - u.lr * direction;
}

}  // namespace lathe
