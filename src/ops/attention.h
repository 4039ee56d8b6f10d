// attention: softmax(scale * q k^T) v per head; causal: position t sees positions 0..t.
//   attention(q, k, v: [B, H, T, D]) -> y [B, H, T, D], lse [B, H, T]   (log of the sum of exp of each row's scores;
//                                                                        f32 where q is f16 or bf16)
//   attention_grad(dy, q, k, v, y, lse) -> dq, dk, dv
// lse is kept for the backward pass, which recomputes the probabilities as exp(scores - lse) (Dao et al., 2022).
#pragma once

#include "ir/builder.h"

namespace lathe {

struct AttentionParams {
  bool causal = false;  // position t sees positions 0..t alone
  double scale = 1;     // of the scores before softmax
  template <class F>
  static void fields(F&& f) {
    f("causal", &AttentionParams::causal);
    f("scale", &AttentionParams::scale);
  }
};

Value attention(Value q, Value k, Value v, bool causal);  // y, with scale 1 / sqrt(D)
Value attention(Value q, Value k, Value v, bool causal, double scale);
extern const OpDef attention_op;
extern const OpDef attention_grad_op;  // the same parameters

}  // namespace lathe
