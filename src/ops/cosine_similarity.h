// cosine_similarity: x y / (|x| |y|) over the last axis; lengths below eps count as eps. cosine_loss: 1 - similarity
// where `same` is true, else what exceeds the margin.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct CosineSimilarityParams {
  double eps = 1e-8;  // least length
  template <class F>
  static void fields(F&& f) {
    f("eps", &CosineSimilarityParams::eps);
  }
};

struct CosineLossParams {
  double margin = 0;  // similarity that pairs of different things may have
  template <class F>
  static void fields(F&& f) {
    f("margin", &CosineLossParams::margin);
  }
};

Value cosine_similarity(Value x, Value y, double eps = 1e-8);        // [..., D] twice -> [...]
Value cosine_loss(Value x, Value y, Value same, double margin = 0);  // same: bool [...]
extern const OpDef cosine_similarity_op;
extern const OpDef cosine_loss_op;

}  // namespace lathe
