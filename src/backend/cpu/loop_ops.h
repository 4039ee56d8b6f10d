// The instructions of the loop evaluator: each works on a block of values ("register") of one type. Registers hold
// f32, f64, i32, i64 and u8 as such; bool as uint32_t, 0 or all ones, so that masks meet f32 vectors lane by lane. f16
// and bf16 are in memory only.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/loop.h"
#include "ops/scalar.h"

namespace lathe::cpu {

// y[i] = op(a[i], b[i], c[i]) for i < n; y may be an operand whose values have y's size.
using LoopFn = void (*)(void* y, const void* a, const void* b, const void* c, int64_t n);

// Memory holds the type in another form than registers do.
inline bool is_packed(DType t) { return t == DType::b8 || is_16bit(t); }

// Bytes of one value of a register.
inline int64_t register_size(DType t) { return t == DType::b8 ? 4 : size_of(t); }

// A reduction of registers. The accumulator is f32 for f32, f64 for f64, i64 for whole numbers.
struct LoopAccumulate {
  DType dtype = DType::f32;                                            // of the accumulator
  void (*start)(void* acc, int64_t n);                                 // the neutral element
  void (*rows)(void* acc, const void* x, int64_t rows, int64_t len);   // acc[r] = acc[r] . (x[r][0] . x[r][1] ...)
  void (*columns)(void* acc, const void* x, int64_t rows, int64_t n);  // acc[j] = acc[j] . x[0][j] . x[1][j] ...
};

// What is written with vectors; the rest is plain loops.
struct LoopSimd {
  LoopFn (*find)(ScalarOp, DType dtype, DType from);  // null: use find_scalar_loop_fn
  LoopFn load_mask;                                   // uint32_t masks from bytes
  LoopFn store_mask;                                  // bytes 0 and 1 from masks
  LoopFn load_f16, load_bf16;                         // f32 from their bits
  LoopFn store_f16, store_bf16;                       // bits from f32, rounded
  void (*fill)(uint32_t* y, uint32_t value, int64_t n);
  LoopAccumulate sum, max;  // of f32
};
const LoopSimd& loop_simd();  // of the active instruction set

// Any instruction on any type; null where the op has no meaning for the type.
LoopFn find_scalar_loop_fn(ScalarOp, DType dtype, DType from);
LoopAccumulate scalar_loop_accumulate(LoopReduce, DType);  // not for f32 and bool

// The best function for an instruction, with the active instruction set.
inline LoopFn find_loop_fn(ScalarOp op, DType dtype, DType from) {
  const LoopFn f = loop_simd().find(op, dtype, from);
  return f ? f : find_scalar_loop_fn(op, dtype, from);
}
inline LoopAccumulate find_loop_accumulate(LoopReduce kind, DType t) {
  if (t != DType::f32) return scalar_loop_accumulate(kind, t);
  return kind == LoopReduce::max ? loop_simd().max : loop_simd().sum;
}

}  // namespace lathe::cpu
