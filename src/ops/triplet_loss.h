// Losses of distances in a space of embeddings, over the last axis.
//   pairwise_distance(x, y) = |x - y + eps|: eps keeps the derivative finite where x = y
//   triplet_loss = max(0, d(anchor, positive) - d(anchor, negative) + margin)   (Schroff et al., 2015)
//   contrastive_loss = d^2 / 2 of pairs that are the same, else max(0, margin - d)^2 / 2   (Hadsell et al., 2006)
#pragma once

#include "ir/builder.h"

namespace lathe {

struct PairwiseDistanceParams {
  double eps = 1e-6;  // added to each difference
  template <class F>
  static void fields(F&& f) {
    f("eps", &PairwiseDistanceParams::eps);
  }
};

struct MarginParams {
  double margin = 1;  // distance beyond which there is no loss
  template <class F>
  static void fields(F&& f) {
    f("margin", &MarginParams::margin);
  }
};

Value pairwise_distance(Value x, Value y, double eps = 1e-6);  // [..., D] twice -> [...]
Value triplet_loss(Value anchor, Value positive, Value negative, double margin = 1);
Value contrastive_loss(Value x, Value y, Value same, double margin = 1);  // same: bool [...]
extern const OpDef pairwise_distance_op;
extern const OpDef triplet_loss_op;
extern const OpDef contrastive_loss_op;

}  // namespace lathe
