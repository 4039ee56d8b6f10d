// sgd, sgdw, lars: gradient descent with momentum.
#include "nn/optimizers/rules.h"
#include "ops/elementwise.h"

namespace lathe {
namespace {

// The gradient, or its sum with momentum; PyTorch's form: the learning rate is not part of the buffer.
Value with_momentum(ParamUpdate& u, Value g) {
  if (u.c.momentum <= 0) return g;
  const Value buffer = u.state("momentum_buffer");
  const Value m = buffer * u.c.momentum + g;
  u.set(buffer, m);
  return u.c.nesterov ? g + m * u.c.momentum : m;
}

}  // namespace

Value build_sgd(ParamUpdate& u) { return u.p - u.lr * with_momentum(u, u.with_l2()); }

Value build_sgdw(ParamUpdate& u) { return u.decayed() - u.lr * with_momentum(u, u.g); }

// You, Gitman and Ginsburg (2017): the gradient of a matrix is scaled to `trust` times the norm of the matrix.
Value build_lars(ParamUpdate& u) {
  Value g = u.with_l2();
  if (u.is_matrix()) {
    const Value weight = l2_norm(u.p), gradient = l2_norm(u.g);
    const Value ratio = weight * u.c.trust / (gradient + weight * u.decay);
    const Value zero = constant_like(weight, 0);
    g = g * select(logical_and(greater(weight, zero), greater(gradient, zero)), ratio, constant_like(weight, 1));
  }
  return u.p - u.lr * with_momentum(u, g);
}

}  // namespace lathe
