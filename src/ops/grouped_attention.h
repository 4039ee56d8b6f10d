// Attention beyond the plain one of attention.h: fewer heads of k and v than of q (each serves H / K heads of q,
// Ainslie et al., 2023), other lengths of k and v, masks.
//   grouped_attention(q [B, H, T, D], k [B, K, S, D], v [B, K, S, E]) -> y [B, H, T, E]
//   masked_attention(q, k, v, mask) with mask bool [B or 1, H or 1, T or 1, S]: position t sees s where it is true
// causal: of the last T of S positions, t sees what is not after it: 0 .. t + S - T. A row that sees nothing is 0.
#pragma once

#include "ops/attention.h"

namespace lathe {

Value grouped_attention(Value q, Value k, Value v, bool causal, double scale);
Value masked_attention(Value q, Value k, Value v, Value mask, bool causal, double scale);
extern const OpDef grouped_attention_op;  // AttentionParams
extern const OpDef masked_attention_op;   // AttentionParams

}  // namespace lathe
