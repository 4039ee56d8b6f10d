// lion: the sign of an interpolated momentum (Chen et al., 2023, algorithm 2).
#include "nn/optimizers/rules.h"
#include "ops/elementwise.h"

namespace lathe {

Value build_lion(ParamUpdate& u) {
  const Value mean = u.state("exp_avg");
  const Value direction = unary("sign", mean * u.c.beta1 + u.g * (1 - u.c.beta1));
  u.set(mean, mean * u.c.beta2 + u.g * (1 - u.c.beta2));
  return u.decayed() - u.lr * direction;
}

}  // namespace lathe
