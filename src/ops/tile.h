// tile: the tensor several times over along each axis. repeat: each element several times along one axis.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct TileParams {
  Ints repeats;  // one for each axis
  template <class F>
  static void fields(F&& f) {
    f("repeats", &TileParams::repeats);
  }
};

struct RepeatParams {
  int64_t axis = 0;   // not negative
  int64_t times = 1;  // how often each element is repeated
  template <class F>
  static void fields(F&& f) {
    f("axis", &RepeatParams::axis);
    f("times", &RepeatParams::times);
  }
};

Value tile(Value x, Ints repeats);
Value repeat(Value x, int axis, int64_t times);
extern const OpDef tile_op;
extern const OpDef repeat_op;

}  // namespace lathe
