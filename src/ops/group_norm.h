// Norms that need no statistics of the batch; channels are the last axis.
//   rms_norm(x [..., C], gamma [C]) = x / sqrt(mean(x^2) + eps) * gamma over the last axis   (Zhang and Sennrich, 2019)
//   group_norm(x [N, ..., C], gamma [C], beta [C]): mean and variance of each sample's groups of C / groups channels
//   instance_norm: each channel is a group
//   l2_normalize(x) = x / max(|x|, eps) over the last axis
#pragma once

#include "ir/builder.h"

namespace lathe {

struct RmsNormParams {
  double eps = 1e-6;  // added to the mean square
  template <class F>
  static void fields(F&& f) {
    f("eps", &RmsNormParams::eps);
  }
};

struct GroupNormParams {
  int64_t groups = 1;  // divides the channels
  double eps = 1e-5;   // added to the variance
  template <class F>
  static void fields(F&& f) {
    f("groups", &GroupNormParams::groups);
    f("eps", &GroupNormParams::eps);
  }
};

struct InstanceNormParams {
  double eps = 1e-5;  // added to the variance
  template <class F>
  static void fields(F&& f) {
    f("eps", &InstanceNormParams::eps);
  }
};

struct L2NormalizeParams {
  double eps = 1e-12;  // least length
  template <class F>
  static void fields(F&& f) {
    f("eps", &L2NormalizeParams::eps);
  }
};

Value rms_norm(Value x, Value gamma, double eps = 1e-6);
Value group_norm(Value x, Value gamma, Value beta, int64_t groups, double eps = 1e-5);
Value instance_norm(Value x, Value gamma, Value beta, double eps = 1e-5);
Value l2_normalize(Value x, double eps = 1e-12);
extern const OpDef group_norm_op;
extern const OpDef instance_norm_op;
extern const OpDef l2_normalize_op;
extern const OpDef rms_norm_op;

}  // namespace lathe
