// rotary: turns pairs of channels by an angle that grows with the position (Su et al., 2021): channel i < D / 2 and its
// partner i + D / 2 by position * base^(-2 i / D).
//   rotary(x [..., T, D], positions i32 or i64 [T]) -> [..., T, D]
#pragma once

#include "ir/builder.h"

namespace lathe {

struct RotaryParams {
  double base = 10000;  // of the wave lengths
  template <class F>
  static void fields(F&& f) {
    f("base", &RotaryParams::base);
  }
};

Value rotary(Value x, Value positions, double base = 10000);
extern const OpDef rotary_op;

}  // namespace lathe
