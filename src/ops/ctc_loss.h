// ctc_loss: -log of the probability that the frames say the labels, whatever their alignment (Graves et al., 2006).
//   ctc_loss(x [B, T, C] log-probabilities, labels i32 [B, S], frames i32 [B], lengths i32 [B]) -> [B]
// Sample b has frames[b] in [1, T] frames and lengths[b] in [0, S] labels; what stands behind them is not read. `blank`
// is the class of no label. A sample that no alignment fits has a loss of about 1e30. The expansion has nodes for every
// frame.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct CtcLossParams {
  int64_t blank = 0;  // the class that stands for nothing
  template <class F>
  static void fields(F&& f) {
    f("blank", &CtcLossParams::blank);
  }
};

Value ctc_loss(Value log_probabilities, Value labels, Value frames, Value lengths, int64_t blank = 0);
extern const OpDef ctc_loss_op;

}  // namespace lathe
