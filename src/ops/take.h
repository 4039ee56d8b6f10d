// take: elements of an axis by index: gather along any axis. flip: axes the other way round. roll: elements moved along
// an axis, what leaves at the end comes in at the start.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct TakeParams {
  int64_t axis = 0;  // not negative
  template <class F>
  static void fields(F&& f) {
    f("axis", &TakeParams::axis);
  }
};

struct FlipParams {
  Ints axes;  // ascending, not negative
  template <class F>
  static void fields(F&& f) {
    f("axes", &FlipParams::axes);
  }
};

struct RollParams {
  int64_t axis = 0;   // not negative
  int64_t shift = 0;  // places; negative: towards the start
  template <class F>
  static void fields(F&& f) {
    f("axis", &RollParams::axis);
    f("shift", &RollParams::shift);
  }
};

Value take(Value x, Value indices, int axis);  // the axis is replaced by those of the indices (i32 or i64)
Value flip(Value x, Ints axes);
Value roll(Value x, int axis, int64_t shift);
extern const OpDef take_op;
extern const OpDef flip_op;
extern const OpDef roll_op;

}  // namespace lathe
