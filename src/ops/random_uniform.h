// random_uniform: numbers in [0, 1) with 24 bits. Element j of sample b is
//   CounterRng(seed, stream, uint32(step), uint32(index[b])).uniform(j)        (base/philox.h)
// so it depends on the global index of the sample and not on its place in the batch, on threads or on ranks.
// Inputs: key i64[2] = {seed, step}; index i64[B]. The reference holds integers in f64: exact below 2^53.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct RandomUniformParams {
  int64_t stream = 0;  // [0, 2^32): which use of randomness in the graph this is
  Ints shape;          // [B, ...]
  template <class F>
  static void fields(F&& f) {
    f("stream", &RandomUniformParams::stream);
    f("shape", &RandomUniformParams::shape);
  }
};

Value random_uniform(Value key, Value index, int64_t stream, const Shape&);
extern const OpDef random_uniform_op;

}  // namespace lathe
