// Random numbers from random_uniform: a function of key {seed, step}, sample index, stream and place, the same on every
// device (random_normal and random_exponential up to the rounding of their logarithms).
//   random_normal: mean 0, variance 1 (Box and Muller, 1958)      random_exponential: mean 1
//   random_bernoulli: 1 with probability `rate`, else 0           random_integer: whole numbers in [lo, hi)
//   random_categorical(logits [B, ..., C], key, index) -> i32 [B, ...]: class c with probability softmax(logits)[c]
#pragma once

#include "ops/random_uniform.h"

namespace lathe {

struct RandomBernoulliParams {
  int64_t stream = 0;  // as of random_uniform
  Ints shape;          // one index for each of the first axis
  double rate = 0.5;   // of ones
  template <class F>
  static void fields(F&& f) {
    f("stream", &RandomBernoulliParams::stream);
    f("shape", &RandomBernoulliParams::shape);
    f("rate", &RandomBernoulliParams::rate);
  }
};

struct RandomIntegerParams {
  int64_t stream = 0;      // as of random_uniform
  Ints shape;              // one index for each of the first axis
  int64_t lo = 0, hi = 2;  // hi - lo <= 2^24
  template <class F>
  static void fields(F&& f) {
    f("stream", &RandomIntegerParams::stream);
    f("shape", &RandomIntegerParams::shape);
    f("lo", &RandomIntegerParams::lo);
    f("hi", &RandomIntegerParams::hi);
  }
};

struct RandomCategoricalParams {
  int64_t stream = 0;  // as of random_uniform
  template <class F>
  static void fields(F&& f) {
    f("stream", &RandomCategoricalParams::stream);
  }
};

Value random_normal(Value key, Value index, int64_t stream, const Shape&);  // f32
Value random_exponential(Value key, Value index, int64_t stream, const Shape&);
Value random_bernoulli(Value key, Value index, int64_t stream, const Shape&, double rate);           // f32
Value random_integer(Value key, Value index, int64_t stream, const Shape&, int64_t lo, int64_t hi);  // i32
Value random_categorical(Value logits, Value key, Value index, int64_t stream);
extern const OpDef random_bernoulli_op;
extern const OpDef random_categorical_op;
extern const OpDef random_exponential_op;  // RandomUniformParams
extern const OpDef random_integer_op;
extern const OpDef random_normal_op;  // RandomUniformParams

}  // namespace lathe
