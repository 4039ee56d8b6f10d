// The elementwise table. A row: name, what it computes, its scalar expression, its vjp in terms of rows, and the range
// from which tests draw inputs.
#include "ops/elementwise.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ops/broadcast.h"
#include "ops/cast.h"
#include "ops/full.h"

namespace lathe {
namespace {

using S = Scalar;
using Op = ScalarOp;
using In = ElementwiseRow::In;
using Out = ElementwiseRow::Out;

constexpr double kSqrt2OverPi = 0.7978845608028654;
constexpr double kGeluCubic = 0.044715;
constexpr double kTwoOverSqrtPi = 1.1283791670955126;
constexpr double kSqrtHalf = 0.7071067811865476;
constexpr double kNormalDensity = 0.3989422804014327;                               // at 0
constexpr double kSeluScale = 1.0507009873554805, kSeluAlpha = 1.6732632423543772;  // Klambauer et al., 2017

// tanh approximation of GELU (Hendrycks and Gimpel, 2016), as GPT-2 uses it.
S gelu_inner(S x, S squared) {
  const S cubic = squared.binary(Op::mul, x).binary(Op::mul, x.constant(kGeluCubic));
  return x.binary(Op::add, cubic).binary(Op::mul, x.constant(kSqrt2OverPi)).unary(Op::tanh);
}

// (1 + t) / 2 + x / 2 (1 - t^2) u', where t = tanh(u). One op, so that backends with a kernel for a product and the
// gradient of gelu behind it recognise it.
S gelu_slope(S x) {
  const S squared = x.binary(Op::mul, x), t = gelu_inner(x, squared), one = x.constant(1), half = x.constant(0.5);
  const S inner = squared.binary(Op::mul, x.constant(3 * kGeluCubic)).binary(Op::add, one);
  const S slope = one.binary(Op::sub, t.binary(Op::mul, t)).binary(Op::mul, inner);
  const S right = x.binary(Op::mul, slope.binary(Op::mul, x.constant(kSqrt2OverPi))).binary(Op::mul, half);
  return t.binary(Op::add, one).binary(Op::mul, half).binary(Op::add, right);
}

// (1 - t^2) (u' + x u'' / 2 - x t u'^2)
Values gelu_slope_vjp(const Vjp& v) {
  const Value x = v.x[0];
  const Value t = tanh((x + square(x) * x * kGeluCubic) * kSqrt2OverPi);
  const Value inner = (square(x) * (3 * kGeluCubic) + 1.0) * kSqrt2OverPi;
  const Value bend = inner + square(x) * (3 * kGeluCubic * kSqrt2OverPi) - x * t * square(inner);
  return {v.dy() * (1.0 - square(t)) * bend};
}

S negated_abs_softplus(S x) { return x.unary(Op::abs).unary(Op::neg).unary(Op::exp).unary(Op::log1p); }
S softplus_of(S x) { return x.binary(Op::max, x.constant(0)).binary(Op::add, negated_abs_softplus(x)); }

// Howard et al., 2019: x / 6 + 1 / 2 within [0, 1].
S hard_sigmoid_of(S x) {
  const S line = x.binary(Op::div, x.constant(6)).binary(Op::add, x.constant(0.5));
  return line.binary(Op::max, x.constant(0)).binary(Op::min, x.constant(1));
}
Value strictly_within(Value x, double lo, double hi) {
  return logical_and(less(constant_like(x, lo), x), less(x, constant_like(x, hi)));
}

// The slopes of a choice between two: all to the one that was chosen, half to each where they are equal.
Values one_of(const Vjp& v, Value first) {
  const Value zero = constant_like(v.dy(), 0), tie = equal(v.x[0], v.x[1]), half = v.dy() * 0.5;
  return {select(tie, half, select(first, v.dy(), zero)), select(tie, half, select(first, zero, v.dy()))};
}

constexpr ElementwiseRow kRows[] = {
    {"add", "a + b", 2, In::number, Out::same, [](const S* x) { return x[0].binary(Op::add, x[1]); },
     [](const Vjp& v) -> Values {
       return {v.dy(), v.dy()};
     },
     -1, 1, 0, ElementwiseRow::Linear::together},
    {"sub", "a - b", 2, In::number, Out::same, [](const S* x) { return x[0].binary(Op::sub, x[1]); },
     [](const Vjp& v) -> Values {
       return {v.dy(), -v.dy()};
     },
     -1, 1, 0, ElementwiseRow::Linear::together},
    {"mul", "a * b", 2, In::number, Out::same, [](const S* x) { return x[0].binary(Op::mul, x[1]); },
     [](const Vjp& v) -> Values {
       return {v.dy() * v.x[1], v.dy() * v.x[0]};
     },
     -1, 1, 0, ElementwiseRow::Linear::each},
    {"div", "a / b", 2, In::real, Out::same, [](const S* x) { return x[0].binary(Op::div, x[1]); },
     [](const Vjp& v) -> Values {
       return {v.dy() / v.x[1], -(v.dy() * v.y[0] / v.x[1])};
     },
     -2, 2, 0.5, ElementwiseRow::Linear::first},
    {"max", "the larger of a and b; NaN if either is", 2, In::number, Out::same,
     [](const S* x) { return x[0].binary(Op::max, x[1]); },
     [](const Vjp& v) -> Values {
       return one_of(v, less(v.x[1], v.x[0]));
     },
     -1, 1, 0},
    {"min", "the smaller of a and b; NaN if either is", 2, In::number, Out::same,
     [](const S* x) { return x[0].binary(Op::min, x[1]); },
     [](const Vjp& v) -> Values {
       return one_of(v, less(v.x[0], v.x[1]));
     },
     -1, 1, 0},
    {"pow", "a to the power b, a > 0", 2, In::real, Out::same, [](const S* x) { return x[0].binary(Op::pow, x[1]); },
     [](const Vjp& v) -> Values {
       return {v.dy() * v.x[1] * pow(v.x[0], v.x[1] - 1.0), v.dy() * v.y[0] * log(v.x[0])};
     },
     0.5, 2, 0},
    {"eq", "a == b", 2, In::number, Out::boolean, [](const S* x) { return x[0].binary(Op::eq, x[1]); }, nullptr, -2, 2,
     0},
    {"lt", "a < b", 2, In::number, Out::boolean, [](const S* x) { return x[0].binary(Op::lt, x[1]); }, nullptr, -2, 2,
     0},
    {"le", "a <= b", 2, In::number, Out::boolean, [](const S* x) { return x[0].binary(Op::le, x[1]); }, nullptr, -2, 2,
     0},
    {"gt", "a > b", 2, In::number, Out::boolean, [](const S* x) { return x[1].binary(Op::lt, x[0]); }, nullptr, -2, 2,
     0},
    {"ge", "a >= b", 2, In::number, Out::boolean, [](const S* x) { return x[1].binary(Op::le, x[0]); }, nullptr, -2, 2,
     0},
    {"ne", "a != b", 2, In::number, Out::boolean,
     [](const S* x) { return x[0].binary(Op::eq, x[1]).unary(Op::logical_not); }, nullptr, -2, 2, 0},
    {"logical_and", "a and b", 2, In::boolean, Out::boolean,
     [](const S* x) { return x[0].binary(Op::logical_and, x[1]); }, nullptr, 0, 1, 0},
    {"logical_or", "a or b", 2, In::boolean, Out::boolean, [](const S* x) { return x[0].binary(Op::logical_or, x[1]); },
     nullptr, 0, 1, 0},
    {"logical_not", "not x", 1, In::boolean, Out::boolean, [](const S* x) { return x[0].unary(Op::logical_not); },
     nullptr, 0, 1, 0},
    {"select", "a ? b : c", 3, In::choice, Out::same, [](const S* x) { return x[0].choose(x[1], x[2]); },
     [](const Vjp& v) -> Values {
       const Value zero = constant_like(v.dy(), 0);
       return {Value(), select(v.x[0], v.dy(), zero), select(v.x[0], zero, v.dy())};
     },
     -1, 1, 0, ElementwiseRow::Linear::choices},
    {"neg", "-x", 1, In::number, Out::same, [](const S* x) { return x[0].unary(Op::neg); },
     [](const Vjp& v) -> Values { return {-v.dy()}; }, -1, 1, 0, ElementwiseRow::Linear::together},
    {"abs", "|x|", 1, In::number, Out::same, [](const S* x) { return x[0].unary(Op::abs); },
     [](const Vjp& v) -> Values { return {v.dy() * unary("sign", v.x[0])}; }, -1, 1, 0.1},
    {"exp", "e to the power x", 1, In::real, Out::same, [](const S* x) { return x[0].unary(Op::exp); },
     [](const Vjp& v) -> Values { return {v.dy() * v.y[0]}; }, -3, 3, 0},
    {"log", "natural logarithm", 1, In::real, Out::same, [](const S* x) { return x[0].unary(Op::log); },
     [](const Vjp& v) -> Values { return {v.dy() / v.x[0]}; }, 0.2, 3, 0},
    {"sqrt", "square root", 1, In::real, Out::same, [](const S* x) { return x[0].unary(Op::sqrt); },
     [](const Vjp& v) -> Values { return {v.dy() * 0.5 / v.y[0]}; }, 0.2, 3, 0},
    {"rsqrt", "1 / sqrt(x)", 1, In::real, Out::same, [](const S* x) { return x[0].unary(Op::rsqrt); },
     [](const Vjp& v) -> Values { return {v.dy() * v.y[0] * v.y[0] * v.y[0] * -0.5}; }, 0.2, 3, 0},
    {"tanh", "hyperbolic tangent", 1, In::real, Out::same, [](const S* x) { return x[0].unary(Op::tanh); },
     [](const Vjp& v) -> Values { return {v.dy() * (1.0 - square(v.y[0]))}; }, -3, 3, 0},
    {"sigmoid", "1 / (1 + exp(-x))", 1, In::real, Out::same, [](const S* x) { return x[0].unary(Op::sigmoid); },
     [](const Vjp& v) -> Values { return {v.dy() * v.y[0] * (1.0 - v.y[0])}; }, -3, 3, 0},
    {"relu", "max(x, 0)", 1, In::number, Out::same, [](const S* x) { return x[0].binary(Op::max, x[0].constant(0)); },
     [](const Vjp& v) -> Values {
       const Value zero = constant_like(v.dy(), 0);
       return {select(less(zero, v.y[0]), v.dy(), zero)};
     },
     -1, 1, 0.1},
    {"gelu", "x * Phi(x), tanh approximation", 1, In::real, Out::same,
     [](const S* x) {
       const S half = x[0].binary(Op::mul, x[0].constant(0.5));
       return half.binary(Op::mul, gelu_inner(x[0], x[0].binary(Op::mul, x[0])).binary(Op::add, x[0].constant(1)));
     },
     [](const Vjp& v) -> Values { return {v.dy() * unary("gelu_slope", v.x[0])}; }, -3, 3, 0},
    {"gelu_slope", "derivative of gelu", 1, In::real, Out::same, [](const S* x) { return gelu_slope(x[0]); },
     gelu_slope_vjp, -3, 3, 0},
    {"silu", "x * sigmoid(x)", 1, In::real, Out::same,
     [](const S* x) { return x[0].binary(Op::mul, x[0].unary(Op::sigmoid)); },
     [](const Vjp& v) -> Values {
       const Value s = sigmoid(v.x[0]);
       return {v.dy() * (s + v.x[0] * s * (1.0 - s))};
     },
     -3, 3, 0},
    {"square", "x * x", 1, In::number, Out::same, [](const S* x) { return x[0].binary(Op::mul, x[0]); },
     [](const Vjp& v) -> Values { return {v.dy() * v.x[0] * 2.0}; }, -2, 2, 0},
    {"erf", "error function", 1, In::real, Out::same, [](const S* x) { return x[0].unary(Op::erf); },
     [](const Vjp& v) -> Values { return {v.dy() * exp(-square(v.x[0])) * kTwoOverSqrtPi}; }, -2, 2, 0},
    {"sin", "sine", 1, In::real, Out::same, [](const S* x) { return x[0].unary(Op::sin); },
     [](const Vjp& v) -> Values { return {v.dy() * unary("cos", v.x[0])}; }, -3, 3, 0},
    {"cos", "cosine", 1, In::real, Out::same, [](const S* x) { return x[0].unary(Op::cos); },
     [](const Vjp& v) -> Values { return {-(v.dy() * unary("sin", v.x[0]))}; }, -3, 3, 0},
    {"floor", "largest whole number not above x", 1, In::real, Out::same,
     [](const S* x) { return x[0].unary(Op::floor); }, nullptr, -2.3, 2.3, 0},
    {"ceil", "smallest whole number not below x", 1, In::real, Out::same,
     [](const S* x) { return x[0].unary(Op::neg).unary(Op::floor).unary(Op::neg); }, nullptr, -2.3, 2.3, 0},
    {"round", "nearest whole number, halves to the even one", 1, In::real, Out::same,
     [](const S* x) { return x[0].unary(Op::round); }, nullptr, -2.3, 2.3, 0},
    {"trunc", "whole part of x", 1, In::real, Out::same,
     [](const S* x) {
       const S up = x[0].unary(Op::neg).unary(Op::floor).unary(Op::neg), negative = x[0].binary(Op::lt, x[0].constant(0));
       return negative.choose(up, x[0].unary(Op::floor));
     },
     nullptr, -2.3, 2.3, 0},
    {"sign", "-1, 0 or 1", 1, In::number, Out::same,
     [](const S* x) {
       const S zero = x[0].constant(0), below = x[0].binary(Op::lt, zero);
       const S rest = below.choose(x[0].constant(-1), x[0]);
       return zero.binary(Op::lt, x[0]).choose(x[0].constant(1), rest);
     },
     nullptr, -2, 2, 0},
    {"mod", "a - b floor(a / b): the remainder with the sign of b", 2, In::real, Out::same,
     [](const S* x) {
       const S times = x[0].binary(Op::div, x[1]).unary(Op::floor);
       return x[0].binary(Op::sub, x[1].binary(Op::mul, times));
     },
     [](const Vjp& v) -> Values {
       return {v.dy(), -(v.dy() * unary("floor", v.x[0] / v.x[1]))};
     },
     -2, 2, 0.5},
    {"reciprocal", "1 / x", 1, In::real, Out::same, [](const S* x) { return x[0].constant(1).binary(Op::div, x[0]); },
     [](const Vjp& v) -> Values { return {-(v.dy() * square(v.y[0]))}; }, -2, 2, 0.5},
    {"expm1", "exp(x) - 1, exact near 0", 1, In::real, Out::same, [](const S* x) { return x[0].unary(Op::expm1); },
     [](const Vjp& v) -> Values { return {v.dy() * (v.y[0] + 1.0)}; }, -3, 3, 0},
    {"log1p", "log(1 + x), exact near 0", 1, In::real, Out::same, [](const S* x) { return x[0].unary(Op::log1p); },
     [](const Vjp& v) -> Values { return {v.dy() / (v.x[0] + 1.0)}; }, -0.8, 3, 0},
    {"tan", "tangent", 1, In::real, Out::same,
     [](const S* x) { return x[0].unary(Op::sin).binary(Op::div, x[0].unary(Op::cos)); },
     [](const Vjp& v) -> Values { return {v.dy() * (square(v.y[0]) + 1.0)}; }, -1.3, 1.3, 0},
    {"sinh", "hyperbolic sine", 1, In::real, Out::same,
     [](const S* x) {
       const S twice = x[0].unary(Op::expm1).binary(Op::sub, x[0].unary(Op::neg).unary(Op::expm1));
       return twice.binary(Op::mul, x[0].constant(0.5));
     },
     [](const Vjp& v) -> Values { return {v.dy() * unary("cosh", v.x[0])}; }, -3, 3, 0},
    {"cosh", "hyperbolic cosine", 1, In::real, Out::same,
     [](const S* x) {
       const S twice = x[0].unary(Op::exp).binary(Op::add, x[0].unary(Op::neg).unary(Op::exp));
       return twice.binary(Op::mul, x[0].constant(0.5));
     },
     [](const Vjp& v) -> Values { return {v.dy() * unary("sinh", v.x[0])}; }, -3, 3, 0},
    {"softplus", "log(1 + exp(x))", 1, In::real, Out::same, [](const S* x) { return softplus_of(x[0]); },
     [](const Vjp& v) -> Values { return {v.dy() * sigmoid(v.x[0])}; }, -3, 3, 0},
    {"log_sigmoid", "log(sigmoid(x))", 1, In::real, Out::same,
     [](const S* x) { return x[0].binary(Op::min, x[0].constant(0)).binary(Op::sub, negated_abs_softplus(x[0])); },
     [](const Vjp& v) -> Values { return {v.dy() * sigmoid(-v.x[0])}; }, -3, 3, 0},
    {"softsign", "x / (1 + |x|)", 1, In::real, Out::same,
     [](const S* x) { return x[0].binary(Op::div, x[0].unary(Op::abs).binary(Op::add, x[0].constant(1))); },
     [](const Vjp& v) -> Values { return {v.dy() / square(abs(v.x[0]) + 1.0)}; }, -3, 3, 0},
    {"mish", "x * tanh(softplus(x))", 1, In::real, Out::same,
     [](const S* x) { return x[0].binary(Op::mul, softplus_of(x[0]).unary(Op::tanh)); },
     [](const Vjp& v) -> Values {
       const Value x = v.x[0], t = tanh(softplus(x));
       return {v.dy() * (t + x * sigmoid(x) * (1.0 - square(t)))};
     },
     -3, 3, 0},
    {"selu", "scale * (x > 0 ? x : alpha * (exp(x) - 1)) of self-normalising networks", 1, In::real, Out::same,
     [](const S* x) {
       const S low = x[0].unary(Op::expm1).binary(Op::mul, x[0].constant(kSeluScale * kSeluAlpha));
       const S high = x[0].binary(Op::mul, x[0].constant(kSeluScale));
       return x[0].constant(0).binary(Op::lt, x[0]).choose(high, low);
     },
     [](const Vjp& v) -> Values {
       const Value positive = less(constant_like(v.x[0], 0), v.x[0]);
       return {v.dy() * select(positive, constant_like(v.x[0], kSeluScale), v.y[0] + kSeluScale * kSeluAlpha)};
     },
     -3, 3, 0.1},
    {"gelu_erf", "x * Phi(x), exact", 1, In::real, Out::same,
     [](const S* x) {
       const S phi = x[0].binary(Op::mul, x[0].constant(kSqrtHalf)).unary(Op::erf).binary(Op::add, x[0].constant(1));
       return x[0].binary(Op::mul, x[0].constant(0.5)).binary(Op::mul, phi);
     },
     [](const Vjp& v) -> Values {
       const Value x = v.x[0], phi = (unary("erf", x * kSqrtHalf) + 1.0) * 0.5;
       return {v.dy() * (phi + x * exp(square(x) * -0.5) * kNormalDensity)};
     },
     -3, 3, 0},
    {"relu6", "x within [0, 6]", 1, In::real, Out::same,
     [](const S* x) { return x[0].binary(Op::max, x[0].constant(0)).binary(Op::min, x[0].constant(6)); },
     [](const Vjp& v) -> Values { return {select(strictly_within(v.x[0], 0, 6), v.dy(), constant_like(v.dy(), 0))}; },
     -4, 9, 0.1},
    {"hard_sigmoid", "x / 6 + 1 / 2 within [0, 1]", 1, In::real, Out::same,
     [](const S* x) { return hard_sigmoid_of(x[0]); },
     [](const Vjp& v) -> Values { return {select(strictly_within(v.x[0], -3, 3), v.dy() / 6.0, constant_like(v.dy(), 0))}; }, -5,
     5, 0},
    {"hard_swish", "x * hard_sigmoid(x)", 1, In::real, Out::same,
     [](const S* x) { return x[0].binary(Op::mul, hard_sigmoid_of(x[0])); },
     [](const Vjp& v) -> Values {
       const Value x = v.x[0], one = constant_like(x, 1), zero = constant_like(x, 0);
       return {v.dy() * select(strictly_within(x, -3, 3), x / 3.0 + 0.5, select(less(x, zero), zero, one))};
     },
     -5, 5, 0},
    {"is_finite", "x is neither NaN nor infinite", 1, In::real, Out::boolean,
     [](const S* x) { return x[0].unary(Op::is_finite); }, nullptr, -1, 1, 0},
};
constexpr size_t kCount = std::size(kRows);

ScalarExpr row_expr(const ElementwiseRow& row, ArgTypes in) {
  ScalarExpr e;
  std::vector<S> args;
  std::vector<DType> types;
  for (int i = 0; i < row.arity; ++i) {
    args.push_back(S::arg(e, i));
    types.push_back(in[static_cast<size_t>(i)].dtype);
  }
  row.expr(args.data());
  assign_types(e, types);
  return e;
}

bool accepts(In in, int position, DType t) {
  switch (in) {
    case In::number: return t != DType::b8;
    case In::real: return is_float(t);
    case In::boolean: return t == DType::b8;
    case In::choice: return (t == DType::b8) == (position == 0);
  }
  return false;
}

template <size_t I>
struct RowOp {
  using Params = NoParams;
  static constexpr ElementwiseRow row = kRows[I];
  static constexpr OpInfo info{.name = row.name, .doc = row.doc, .inputs = row.arity, .traits = kElementwise};

  static Types infer(ArgTypes x, const Params&) {
    const TensorType& first = x[row.in == In::choice ? 1 : 0];
    for (size_t i = 0; i < x.size(); ++i) {
      LATHE_USER_CHECK(x[i].shape == first.shape, "{}: inputs have shapes {} and {}; broadcast them first", row.name,
                       to_string(first.shape), to_string(x[i].shape));
      LATHE_USER_CHECK(accepts(row.in, static_cast<int>(i), x[i].dtype), "{}: input {} cannot be {}", row.name, i,
                       to_string(x[i].dtype));
      LATHE_USER_CHECK(x[i].dtype == first.dtype || (row.in == In::choice && i == 0),
                       "{}: inputs have types {} and {}; cast one of them", row.name, to_string(first.dtype),
                       to_string(x[i].dtype));
    }
    return {{row.out == Out::boolean ? DType::b8 : first.dtype, first.shape}};
  }

  static Cost cost(ArgTypes in, ArgTypes out, const Params&) {
    Cost c = detail::cost_of_bytes(in, out);
    c.flops = static_cast<double>(out[0].numel());
    return c;
  }

  static PlacementRows placements(ArgTypes x, ArgTypes, const Params&) {
    PlacementRows rows;
    add_split_rows(rows, x.size(), x[0].shape.ndim());
    if (!is_float(x.back().dtype)) return rows;
    switch (row.linear) {
      case ElementwiseRow::Linear::none: break;
      case ElementwiseRow::Linear::together: rows.push_back({Placements(x.size(), kPartial), {kPartial}}); break;
      case ElementwiseRow::Linear::each: add_linear_rows(rows, x.size()); break;
      case ElementwiseRow::Linear::first: rows.push_back({{kPartial, kReplicated}, {kPartial}}); break;
      case ElementwiseRow::Linear::choices: rows.push_back({{kReplicated, kPartial, kPartial}, {kPartial}}); break;
    }
    return rows;
  }

  static void reference(RefOuts y, RefIns x, const Params&) {
    Types in;
    for (const RefTensor& t : x) in.push_back(t.type);
    const ScalarExpr e = row_expr(row, in);
    double args[3];
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      for (size_t k = 0; k < x.size(); ++k) args[k] = x[k][i];
      y[0][i] = evaluate(e, {args, x.size()});
    }
  }

  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    const auto sample = [&](const char* label, DType t, Shape shape, double reach = 1) {
      Sample s{label, {}, make_params(NoParams{})};
      for (int i = 0; i < row.arity; ++i) {
        const bool flag = row.in == In::boolean || (row.in == In::choice && i == 0);
        if (flag)
          s.inputs.push_back({{DType::b8, shape}, 0, 1, 0});
        else
          s.inputs.push_back({{t, shape}, reach * row.lo, reach * row.hi, row.gap});
      }
      out.push_back(std::move(s));
    };
    sample("matrix", DType::f32, {5, 7});
    if (row.in == In::boolean) return out;
    sample("scalar", DType::f32, {});
    sample("long", DType::f32, {3, 1001});
    sample("empty", DType::f32, {0, 4});
    // Where functions that level off have done so, and their slopes must be 0.
    constexpr std::string_view kLevelOff[] = {"tanh",       "sigmoid",  "erf",  "gelu",
                                              "gelu_slope", "gelu_erf", "silu", "mish"};
    if (std::ranges::find(kLevelOff, row.name) != std::end(kLevelOff)) sample("far", DType::f32, {3, 101}, 8);
    if (row.in != In::real) sample("i32", DType::i32, {9, 5});
    return out;
  }
};

// Rows without a vjp must not have the facet at all: is_differentiable() looks at it.
template <size_t I>
constexpr OpDef make_row() {
  OpDef op = make_op<RowOp<I>>();
  if constexpr (kRows[I].vjp != nullptr) op.vjp = [](const Vjp& v, const void*) -> Values { return kRows[I].vjp(v); };
  return op;
}

template <size_t... I>
constexpr std::array<OpDef, kCount> make_rows(std::index_sequence<I...>) {
  return {make_row<I>()...};
}

constinit const std::array<OpDef, kCount> kOps = make_rows(std::make_index_sequence<kCount>());

size_t row_index(std::string_view op) {
  for (size_t i = 0; i < kCount; ++i)
    if (kRows[i].name == op) return i;
  return kCount;
}

}  // namespace

const ElementwiseRow* find_elementwise(std::string_view op) {
  const size_t i = row_index(op);
  return i < kCount ? &kRows[i] : nullptr;
}

ScalarExpr elementwise_expr(const Node& n, ArgTypes in) {
  if (n.is("cast")) {
    ScalarExpr e;
    const DType to = n.get<CastParams>().dtype;
    e.instrs.push_back({.op = Op::arg, .a = 0, .dtype = in[0].dtype, .from = in[0].dtype});
    e.instrs.push_back({.op = Op::convert, .a = 0, .dtype = to, .from = in[0].dtype});
    return e;
  }
  const ElementwiseRow* row = find_elementwise(n.op->name());
  LATHE_CHECK(row, "{} is not an elementwise op", n.op->name());
  return row_expr(*row, in);
}

std::vector<const OpDef*> elementwise_ops() {
  std::vector<const OpDef*> out;
  for (const OpDef& op : kOps) out.push_back(&op);
  return out;
}

Value elementwise(std::string_view op, ArgValues x) {
  const size_t i = row_index(op);
  const auto count = static_cast<int>(x.size());
  if (i == kCount) {
    std::vector<std::string_view> names;
    for (const ElementwiseRow& row : kRows)
      if (row.arity == count) names.push_back(row.name);
    throw UserError(
        fmt::format("no elementwise op of {} inputs is named \"{}\"; known: {}", count, op, fmt::join(names, ", ")));
  }
  LATHE_USER_CHECK(count == kRows[i].arity, "{}: expected {} inputs, got {}", op, kRows[i].arity, count);
  Shape common = x[0].shape();
  for (const Value& v : x) common = broadcast_shape(common, v.shape());
  Values args;
  for (const Value& v : x) args.push_back(broadcast_to(v, common));
  return x[0].builder().add(kOps[i], args, make_params(NoParams{}))[0];
}

Value constant_like(Value x, double v) { return full(x.builder(), {x.dtype(), {}}, v); }

}  // namespace lathe
