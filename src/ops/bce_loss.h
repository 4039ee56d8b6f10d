// Losses of yes-or-no answers, of each element, from logits x and targets t in [0, 1].
//   bce_loss = -w t log(p) - (1 - t) log(1 - p)   with p = sigmoid(x) and w = pos_weight
//   focal_loss = alpha' (1 - p')^gamma bce_loss   with p' and alpha' as the target says (Lin et al., 2017)
#pragma once

#include "ir/builder.h"

namespace lathe {

struct BceLossParams {
  double pos_weight = 1;  // weight of positive targets
  template <class F>
  static void fields(F&& f) {
    f("pos_weight", &BceLossParams::pos_weight);
  }
};

struct FocalLossParams {
  double alpha = 0.25;  // weight of positive targets, 1 - alpha that of negative ones
  double gamma = 2;     // how fast the weight of easy elements falls
  template <class F>
  static void fields(F&& f) {
    f("alpha", &FocalLossParams::alpha);
    f("gamma", &FocalLossParams::gamma);
  }
};

Value bce_loss(Value logits, Value target, double pos_weight = 1);
Value focal_loss(Value logits, Value target, double alpha = 0.25, double gamma = 2);
extern const OpDef bce_loss_op;
extern const OpDef focal_loss_op;

}  // namespace lathe
