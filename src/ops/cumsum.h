// cumsum, cumprod: running sum and product along an axis. exclusive: without the element itself; reverse: from the end.
// They are computed in log2(n) steps that add what stands 1, 2, 4, ... places before (Hillis and Steele, 1986).
#pragma once

#include "ir/builder.h"

namespace lathe {

struct ScanParams {
  int64_t axis = 0;        // not negative
  bool exclusive = false;  // an element is not part of its own sum
  bool reverse = false;    // from the end
  template <class F>
  static void fields(F&& f) {
    f("axis", &ScanParams::axis);
    f("exclusive", &ScanParams::exclusive);
    f("reverse", &ScanParams::reverse);
  }
};

Value cumsum(Value x, int axis, bool exclusive = false, bool reverse = false);
Value cumprod(Value x, int axis, bool exclusive = false, bool reverse = false);
extern const OpDef cumsum_op;
extern const OpDef cumprod_op;

}  // namespace lathe
