// adagrad: the gradient over the root of its sum of squares (Duchi, Hazan and Singer, 2011).
#include "nn/optimizers/rules.h"
#include "ops/elementwise.h"

namespace lathe {

Value build_adagrad(ParamUpdate& u) {
  const Value g = u.with_l2();
  const Value sum = u.state("sum");
  const Value s = sum + square(g);
  u.set(sum, s);
  return u.p - u.lr * g / (sqrt(s) + u.c.eps);
}

}  // namespace lathe
