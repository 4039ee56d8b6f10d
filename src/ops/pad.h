// pad: puts `value` around the input and between its elements: output[low + i * (interior + 1)] = x[i] along every
// axis.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct PadParams {
  Ints low;          // elements before the first, for each axis
  Ints high;         // likewise after the last
  Ints interior;     // elements inserted between neighbours
  double value = 0;  // of the new elements
  template <class F>
  static void fields(F&& f) {
    f("low", &PadParams::low);
    f("high", &PadParams::high);
    f("interior", &PadParams::interior);
    f("value", &PadParams::value);
  }
};

Value pad(Value x, Ints low, Ints high, double value = 0, Ints interior = {});  // no interior: all 0
extern const OpDef pad_op;

}  // namespace lathe
