#include "ops/scalar.h"

#include <cmath>

#include "base/error.h"

namespace lathe {

std::string_view to_string(ScalarOp op) {
  switch (op) {
    case ScalarOp::arg: return "arg";
    case ScalarOp::constant: return "constant";
    case ScalarOp::add: return "add";
    case ScalarOp::sub: return "sub";
    case ScalarOp::mul: return "mul";
    case ScalarOp::div: return "div";
    case ScalarOp::max: return "max";
    case ScalarOp::min: return "min";
    case ScalarOp::pow: return "pow";
    case ScalarOp::eq: return "eq";
    case ScalarOp::lt: return "lt";
    case ScalarOp::le: return "le";
    case ScalarOp::logical_and: return "logical_and";
    case ScalarOp::logical_or: return "logical_or";
    case ScalarOp::logical_not: return "logical_not";
    case ScalarOp::select: return "select";
    case ScalarOp::neg: return "neg";
    case ScalarOp::abs: return "abs";
    case ScalarOp::exp: return "exp";
    case ScalarOp::expm1: return "expm1";
    case ScalarOp::log: return "log";
    case ScalarOp::log1p: return "log1p";
    case ScalarOp::sqrt: return "sqrt";
    case ScalarOp::rsqrt: return "rsqrt";
    case ScalarOp::tanh: return "tanh";
    case ScalarOp::sigmoid: return "sigmoid";
    case ScalarOp::erf: return "erf";
    case ScalarOp::sin: return "sin";
    case ScalarOp::cos: return "cos";
    case ScalarOp::floor: return "floor";
    case ScalarOp::round: return "round";
    case ScalarOp::is_finite: return "is_finite";
    case ScalarOp::round_f16: return "round_f16";
    case ScalarOp::round_bf16: return "round_bf16";
    case ScalarOp::convert: return "convert";
  }
  return "?";
}

int arity(ScalarOp op) {
  switch (op) {
    case ScalarOp::arg:
    case ScalarOp::constant: return 0;
    case ScalarOp::select: return 3;
    case ScalarOp::add:
    case ScalarOp::sub:
    case ScalarOp::mul:
    case ScalarOp::div:
    case ScalarOp::max:
    case ScalarOp::min:
    case ScalarOp::pow:
    case ScalarOp::eq:
    case ScalarOp::lt:
    case ScalarOp::le:
    case ScalarOp::logical_and:
    case ScalarOp::logical_or: return 2;
    default: return 1;
  }
}

double apply(ScalarOp op, double a, double b, double c) {
  switch (op) {
    case ScalarOp::add: return a + b;
    case ScalarOp::sub: return a - b;
    case ScalarOp::mul: return a * b;
    case ScalarOp::div: return a / b;
    case ScalarOp::max: return (a > b || std::isnan(a)) ? a : b;
    case ScalarOp::min: return (a < b || std::isnan(a)) ? a : b;
    case ScalarOp::pow: return std::pow(a, b);
    case ScalarOp::eq: return a == b;
    case ScalarOp::lt: return a < b;
    case ScalarOp::le: return a <= b;
    case ScalarOp::logical_and: return a != 0 && b != 0;
    case ScalarOp::logical_or: return a != 0 || b != 0;
    case ScalarOp::logical_not: return a == 0;
    case ScalarOp::select: return a != 0 ? b : c;
    case ScalarOp::neg: return -a;
    case ScalarOp::abs: return std::fabs(a);
    case ScalarOp::exp: return std::exp(a);
    case ScalarOp::expm1: return std::expm1(a);
    case ScalarOp::log: return std::log(a);
    case ScalarOp::log1p: return std::log1p(a);
    case ScalarOp::sqrt: return std::sqrt(a);
    case ScalarOp::rsqrt: return 1.0 / std::sqrt(a);
    case ScalarOp::tanh: return std::tanh(a);
    case ScalarOp::sigmoid: return 1.0 / (1.0 + std::exp(-a));
    case ScalarOp::erf: return std::erf(a);
    case ScalarOp::sin: return std::sin(a);
    case ScalarOp::cos: return std::cos(a);
    case ScalarOp::floor: return std::floor(a);
    case ScalarOp::round: return std::nearbyint(a);
    case ScalarOp::is_finite: return std::isfinite(a);
    case ScalarOp::round_f16: return round_to(DType::f16, a);
    case ScalarOp::round_bf16: return round_to(DType::bf16, a);
    case ScalarOp::arg:
    case ScalarOp::constant:
    case ScalarOp::convert: break;
  }
  LATHE_CHECK(false, "{}", to_string(op));
  return 0;
}

void assign_types(ScalarExpr& e, std::span<const DType> inputs) {
  for (ScalarInstr& i : e.instrs) {
    const auto type_of = [&](int32_t k) { return e.instrs[static_cast<size_t>(k)].dtype; };
    switch (i.op) {
      case ScalarOp::arg: i.dtype = i.from = inputs[static_cast<size_t>(i.a)]; break;
      case ScalarOp::constant:
        // Constants take the type of the first argument that is not bool: rows never mix number types.
        i.dtype = DType::f32;
        for (DType t : inputs)
          if (t != DType::b8) {
            i.dtype = t;
            break;
          }
        i.from = i.dtype;
        break;
      case ScalarOp::eq:
      case ScalarOp::lt:
      case ScalarOp::le:
      case ScalarOp::logical_and:
      case ScalarOp::logical_or:
      case ScalarOp::logical_not:
      case ScalarOp::is_finite:
        i.from = type_of(i.a);
        i.dtype = DType::b8;
        break;
      case ScalarOp::select: i.dtype = i.from = type_of(i.b); break;
      case ScalarOp::convert: i.from = type_of(i.a); break;
      default: i.dtype = i.from = type_of(i.a);
    }
  }
}

double evaluate(const ScalarExpr& e, std::span<const double> inputs) {
  constexpr size_t kMax = 64;
  LATHE_CHECK(e.instrs.size() <= kMax, "a row of {} instructions", e.instrs.size());
  double r[kMax];
  for (size_t k = 0; k < e.instrs.size(); ++k) {
    const ScalarInstr& i = e.instrs[k];
    const auto at = [&](int32_t j) { return j >= 0 ? r[j] : 0.0; };
    if (i.op == ScalarOp::arg)
      r[k] = inputs[static_cast<size_t>(i.a)];
    else if (i.op == ScalarOp::constant)
      r[k] = i.value;
    else if (i.op == ScalarOp::convert)
      r[k] = round_to(i.dtype, r[i.a]);
    else
      r[k] = apply(i.op, at(i.a), at(i.b), at(i.c));
  }
  return r[e.instrs.size() - 1];
}

}  // namespace lathe
