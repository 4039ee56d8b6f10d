// full: a tensor with one value everywhere; the only constant of the IR. iota: 0, 1, 2, ... along one axis.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct FullParams {
  DType dtype = DType::f32;  // of the result
  Ints shape;                // of the result
  double value = 0;          // of every element
  template <class F>
  static void fields(F&& f) {
    f("dtype", &FullParams::dtype);
    f("shape", &FullParams::shape);
    f("value", &FullParams::value);
  }
};

struct IotaParams {
  DType dtype = DType::i32;  // of the result
  Ints shape;                // of the result
  int64_t axis = 0;          // along which it counts
  template <class F>
  static void fields(F&& f) {
    f("dtype", &IotaParams::dtype);
    f("shape", &IotaParams::shape);
    f("axis", &IotaParams::axis);
  }
};

Value full(Builder&, const TensorType&, double value);  // one value everywhere
Value zeros(Builder&, const TensorType&);               // 0 everywhere
Value iota(Builder&, const TensorType&, int axis);      // 0, 1, 2, ... along the axis
extern const OpDef full_op;
extern const OpDef iota_op;

}  // namespace lathe
