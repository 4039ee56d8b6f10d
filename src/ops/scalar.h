// Scalar expressions: what an elementwise op computes for one element, as a short SSA list. Every backend has one
// evaluator or renderer for these instructions; elementwise ops are rows made of them (elementwise.cpp).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace lathe {

// Semantics are those of apply() below. `max` and `min` propagate NaN. Comparisons and logic give bool.
enum class ScalarOp : uint8_t {
  arg,          // input number `a`
  constant,     // `value`
  add,          // a + b
  sub,          // a - b
  mul,          // a * b
  div,          // a / b
  max,          // the larger; NaN if one is
  min,          // the smaller; NaN if one is
  pow,          // a to the power of b
  eq,           // a == b
  lt,           // a < b
  le,           // a <= b
  logical_and,  // a and b
  logical_or,   // a or b
  logical_not,  // not a
  select,       // a ? b : c
  neg,          // -a
  abs,          // |a|
  exp,          // e to the power of a
  expm1,        // exp(a) - 1 without the cancellation near 0
  log,          // natural logarithm
  log1p,        // log(1 + a), likewise
  sqrt,         // square root
  rsqrt,        // 1 / sqrt(a)
  tanh,         // hyperbolic tangent
  sigmoid,      // 1 / (1 + exp(-a))
  erf,          // error function
  sin,          // of radians
  cos,          // of radians
  floor,        // largest whole number that is not above a
  round,        // to the nearest whole number, halves to the even one
  is_finite,    // neither NaN nor infinite
  round_f16,    // to what f16 holds, still an f32
  round_bf16,   // likewise for bf16
  convert,      // a, from `from` to `dtype`
};

std::string_view to_string(ScalarOp);                  // its name in kernel text and errors
int arity(ScalarOp);                                   // instruction operands: 0 to 3
double apply(ScalarOp, double a, double b, double c);  // arg, constant and convert are not for it

struct ScalarInstr {                 // One step of an expression.
  ScalarOp op = ScalarOp::constant;  // what it computes
  int32_t a = -1, b = -1, c = -1;    // earlier instructions; for `arg`: a is the number of the input
  double value = 0;                  // of a constant
  DType dtype = DType::f32;          // of the result
  DType from = DType::f32;           // of the operands (for select: of b and c)
};

// The last instruction is the result.
struct ScalarExpr {
  std::vector<ScalarInstr> instrs;  // each reads earlier ones; the last is the result
};

// Handle for writing expressions: relu is max(x, 0).
class Scalar {
 public:
  Scalar(ScalarExpr& e, int32_t id) : e_(&e), id_(id) {}  // of an instruction that is there
  static Scalar arg(ScalarExpr& e, int i) { return make(e, {.op = ScalarOp::arg, .a = i}); }  // input number i
  // A number, in the same expression.
  Scalar constant(double v) const { return make(*e_, {.op = ScalarOp::constant, .value = v}); }
  Scalar unary(ScalarOp op) const { return make(*e_, {.op = op, .a = id_}); }                         // op(this)
  Scalar binary(ScalarOp op, Scalar b) const { return make(*e_, {.op = op, .a = id_, .b = b.id_}); }  // op(this, b)
  Scalar choose(Scalar yes, Scalar no) const {  // where this is true: yes
    return make(*e_, {.op = ScalarOp::select, .a = id_, .b = yes.id_, .c = no.id_});
  }
  int32_t id() const { return id_; }  // of its instruction

 private:
  static Scalar make(ScalarExpr& e, ScalarInstr i) {
    e.instrs.push_back(i);
    return {e, static_cast<int32_t>(e.instrs.size() - 1)};
  }
  ScalarExpr* e_;
  int32_t id_;
};

// Sets dtype and from of every instruction for the given input types; `out` is the dtype of the result.
void assign_types(ScalarExpr&, std::span<const DType> inputs);

double evaluate(const ScalarExpr&, std::span<const double> inputs);  // in f64

}  // namespace lathe
