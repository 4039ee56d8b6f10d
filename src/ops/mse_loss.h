// Losses of regression, of each element: mse_loss (x - t)^2, l1_loss |x - t|, and huber_loss, which is half the square
// up to a distance of delta and a line beyond it. Average them as the task wants.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct HuberLossParams {
  double delta = 1;  // distance at which the square becomes a line
  template <class F>
  static void fields(F&& f) {
    f("delta", &HuberLossParams::delta);
  }
};

Value mse_loss(Value x, Value target);
Value l1_loss(Value x, Value target);
Value huber_loss(Value x, Value target, double delta = 1);
extern const OpDef mse_loss_op;
extern const OpDef l1_loss_op;
extern const OpDef huber_loss_op;

// Of losses: floats of one type; UserError otherwise.
void check_same_floats(const char* op, ArgValues x);

}  // namespace lathe
