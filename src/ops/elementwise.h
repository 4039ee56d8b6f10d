// Elementwise ops: rows of one table (elementwise.cpp). Inputs of a node have equal shapes; the functions below insert
// the broadcasts (numpy's rule). A new activation is one row; backends need no change.
#pragma once

#include <string_view>

#include "ir/builder.h"
#include "ops/scalar.h"

namespace lathe {

struct ElementwiseRow {   // One elementwise op.
  std::string_view name;  // of the op
  std::string_view doc;   // its formula
  int arity;              // number of inputs
  enum class In {         // Types of inputs.
    number,               // of any type but bool
    real,                 // floats
    boolean,              // bool
    choice,               // bool, and two numbers to choose from
  };
  In in;            // what it takes
  enum class Out {  // Types of results.
    same,           // as the inputs
    boolean,        // bool
  };
  Out out;                          // what it gives
  Scalar (*expr)(const Scalar* x);  // the result for one element
  Values (*vjp)(const Vjp&);        // null: not differentiable (the result is piecewise constant)
  double lo, hi, gap;               // safe range of samples
  // In which inputs it is linear: how sums over ranks go through it.
  enum class Linear {
    none,      // in none
    together,  // in all of them together: a + b
    each,      // in each by itself: a b
    first,     // in the first: a / b
    choices,   // in those that it chooses from
  };
  Linear linear = Linear::none;  // see there
};

// The row of an elementwise op, or null.
const ElementwiseRow* find_elementwise(std::string_view op);
// The scalar expression of a row for given input types; `cast` has one too.
ScalarExpr elementwise_expr(const Node&, ArgTypes in);
std::vector<const OpDef*> elementwise_ops();  // one per row

// Appends a row's node; broadcasts the inputs to their common shape.
Value elementwise(std::string_view op, ArgValues x);

inline Value unary(std::string_view op, Value x) { return elementwise(op, std::span(&x, 1)); }  // a row with one input
inline Value binary(std::string_view op, Value a, Value b) {                                    // a row with two inputs
  const Value x[] = {a, b};
  return elementwise(op, x);
}

Value constant_like(Value x, double v);  // a scalar of x's dtype

inline Value add(Value a, Value b) { return binary("add", a, b); }
inline Value sub(Value a, Value b) { return binary("sub", a, b); }
inline Value mul(Value a, Value b) { return binary("mul", a, b); }
inline Value div(Value a, Value b) { return binary("div", a, b); }
inline Value maximum(Value a, Value b) { return binary("max", a, b); }
inline Value minimum(Value a, Value b) { return binary("min", a, b); }
inline Value pow(Value a, Value b) { return binary("pow", a, b); }
inline Value equal(Value a, Value b) { return binary("eq", a, b); }
inline Value less(Value a, Value b) { return binary("lt", a, b); }
inline Value less_equal(Value a, Value b) { return binary("le", a, b); }
inline Value greater(Value a, Value b) { return binary("lt", b, a); }
inline Value greater_equal(Value a, Value b) { return binary("le", b, a); }
inline Value logical_and(Value a, Value b) { return binary("logical_and", a, b); }
inline Value logical_or(Value a, Value b) { return binary("logical_or", a, b); }
inline Value logical_not(Value x) { return unary("logical_not", x); }
inline Value not_equal(Value a, Value b) { return logical_not(equal(a, b)); }  // a != b
inline Value neg(Value x) { return unary("neg", x); }
inline Value abs(Value x) { return unary("abs", x); }
inline Value exp(Value x) { return unary("exp", x); }
inline Value expm1(Value x) { return unary("expm1", x); }
inline Value log(Value x) { return unary("log", x); }
inline Value log1p(Value x) { return unary("log1p", x); }
inline Value sqrt(Value x) { return unary("sqrt", x); }
inline Value rsqrt(Value x) { return unary("rsqrt", x); }
inline Value tanh(Value x) { return unary("tanh", x); }
inline Value sigmoid(Value x) { return unary("sigmoid", x); }
inline Value relu(Value x) { return unary("relu", x); }
inline Value gelu(Value x) { return unary("gelu", x); }
inline Value silu(Value x) { return unary("silu", x); }
inline Value softplus(Value x) { return unary("softplus", x); }
inline Value square(Value x) { return unary("square", x); }
inline Value erf(Value x) { return unary("erf", x); }
inline Value sin(Value x) { return unary("sin", x); }
inline Value cos(Value x) { return unary("cos", x); }
inline Value floor(Value x) { return unary("floor", x); }
inline Value is_finite(Value x) { return unary("is_finite", x); }
inline Value select(Value condition, Value yes, Value no) {  // yes where the condition holds, else no
  const Value x[] = {condition, yes, no};
  return elementwise("select", x);
}

inline Value operator+(Value a, Value b) { return add(a, b); }
inline Value operator-(Value a, Value b) { return sub(a, b); }
inline Value operator*(Value a, Value b) { return mul(a, b); }
inline Value operator/(Value a, Value b) { return div(a, b); }
inline Value operator-(Value x) { return neg(x); }
inline Value operator+(Value a, double b) { return add(a, constant_like(a, b)); }
inline Value operator-(Value a, double b) { return sub(a, constant_like(a, b)); }
inline Value operator*(Value a, double b) { return mul(a, constant_like(a, b)); }
inline Value operator/(Value a, double b) { return div(a, constant_like(a, b)); }
inline Value operator+(double a, Value b) { return add(constant_like(b, a), b); }
inline Value operator-(double a, Value b) { return sub(constant_like(b, a), b); }
inline Value operator*(double a, Value b) { return mul(constant_like(b, a), b); }
inline Value operator/(double a, Value b) { return div(constant_like(b, a), b); }

}  // namespace lathe
