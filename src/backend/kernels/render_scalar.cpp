#include "backend/kernels/render_scalar.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace lathe {

std::string_view device_type(DType t) {
  switch (t) {
    case DType::f32: return "float";
    case DType::f64: return "double";
    case DType::i32: return "int";
    case DType::i64: return "long";
    case DType::u8:
    case DType::b8: return "uchar";
    case DType::f16:
    case DType::bf16: return "ushort";
  }
  return "?";
}

std::string device_literal(DType t, double value) {
  const double v = round_to(t, value);
  if (is_float(t)) {
    if (std::isnan(v)) return fmt::format("(({})LATHE_NAN)", device_type(t));
    if (std::isinf(v)) return fmt::format("(({}){}LATHE_INF)", device_type(t), v < 0 ? "-" : "");
    // Hexadecimal: exact, and read alike by OpenCL C and C++17.
    return t == DType::f32 ? fmt::format("({:a}f)", v) : fmt::format("({:a})", v);
  }
  if (t == DType::i64)
    return v <= -9223372036854775808.0 ? "(-9223372036854775807L - 1)" : fmt::format("({}L)", static_cast<int64_t>(v));
  if (v == std::numeric_limits<int32_t>::min()) return "(-2147483647 - 1)";
  return fmt::format("(({})({}))", device_type(t), static_cast<int32_t>(v));
}

std::string device_convert(DType from, DType to, const std::string& x) {
  if (from == to) return x;
  if (to == DType::b8) return fmt::format("(uchar)({} != 0)", x);
  if (is_float(to)) return fmt::format("({}){}", device_type(to), x);
  if (is_float(from)) return fmt::format("to_{}_{}({})", to_string(to), device_type(from), x);
  // Between integers: only a narrower type needs to saturate.
  if (size_of(to) >= size_of(from)) return fmt::format("({}){}", device_type(to), x);
  return fmt::format("to_{}_{}({})", to_string(to), device_type(from), x);
}

std::string device_load(DType stored, DType computed, const std::string& x) {
  return is_16bit(stored) && stored != computed ? fmt::format("{}_value({})", to_string(stored), x) : x;
}

std::string device_store(DType stored, DType computed, const std::string& x) {
  return is_16bit(stored) && stored != computed ? fmt::format("{}_bits({})", to_string(stored), x) : x;
}

DType accumulator_type(DType t) { return is_float(t) ? t : DType::i64; }

namespace {

std::string arithmetic(ScalarOp op, DType t, const std::string& a, const std::string& b) {
  const char sign = op == ScalarOp::add ? '+' : op == ScalarOp::sub ? '-' : op == ScalarOp::mul ? '*' : '/';
  // u8 saturates like the reference, which rounds an exact result to the type.
  if (t == DType::u8) return fmt::format("to_u8_int((int){} {} (int){})", a, sign, b);
  return fmt::format("{} {} {}", a, sign, b);
}

std::string expression(const ScalarInstr& i, const std::string& a, const std::string& b, const std::string& c) {
  const std::string_view type = device_type(i.dtype);
  switch (i.op) {
    case ScalarOp::constant: return device_literal(i.dtype, i.value);
    case ScalarOp::add:
    case ScalarOp::sub:
    case ScalarOp::mul:
    case ScalarOp::div: return arithmetic(i.op, i.dtype, a, b);
    case ScalarOp::max: return fmt::format("MAX_NAN({}, {})", a, b);
    case ScalarOp::min: return fmt::format("MIN_NAN({}, {})", a, b);
    case ScalarOp::pow: return fmt::format("pow({}, {})", a, b);
    case ScalarOp::eq: return fmt::format("(uchar)({} == {})", a, b);
    case ScalarOp::lt: return fmt::format("(uchar)({} < {})", a, b);
    case ScalarOp::le: return fmt::format("(uchar)({} <= {})", a, b);
    case ScalarOp::logical_and: return fmt::format("(uchar)(({} != 0) & ({} != 0))", a, b);
    case ScalarOp::logical_or: return fmt::format("(uchar)(({} != 0) | ({} != 0))", a, b);
    case ScalarOp::logical_not: return fmt::format("(uchar)({} == 0)", a);
    case ScalarOp::select: return fmt::format("{} != 0 ? {} : {}", a, b, c);
    case ScalarOp::neg: return i.dtype == DType::u8 ? "(uchar)0" : fmt::format("-{}", a);
    case ScalarOp::abs:
      return is_float(i.dtype) ? fmt::format("fabs({})", a) : fmt::format("({})ABS_INTEGER({})", type, a);
    case ScalarOp::exp: return fmt::format("exp({})", a);
    case ScalarOp::expm1: return fmt::format("expm1({})", a);
    case ScalarOp::log1p: return fmt::format("log1p({})", a);
    case ScalarOp::log: return fmt::format("log({})", a);
    case ScalarOp::sqrt: return fmt::format("sqrt({})", a);
    case ScalarOp::rsqrt: return fmt::format("rsqrt({})", a);
    case ScalarOp::tanh: {
      // OpenCL allows tanh a few ulp, so that it may stop short of 1; gelu's slope takes 1 - tanh^2 times a cube.
      const int exact = i.dtype == DType::f64 ? 20 : 10;  // from there on it rounds to 1
      return fmt::format("{} > {} ? ({})1 : {} < -{} ? ({})-1 : tanh({})", a, exact, type, a, exact, type, a);
    }
    case ScalarOp::sigmoid: return fmt::format("({})1 / (({})1 + exp(-{}))", type, type, a);
    case ScalarOp::erf: return fmt::format("erf({})", a);
    case ScalarOp::sin: return fmt::format("sin({})", a);
    case ScalarOp::cos: return fmt::format("cos({})", a);
    case ScalarOp::floor: return fmt::format("floor({})", a);
    case ScalarOp::round: return fmt::format("rint({})", a);
    case ScalarOp::is_finite: return fmt::format("(uchar)({} - {} == 0)", a, a);  // inf - inf and NaN are not 0
    case ScalarOp::round_f16: return fmt::format("f16_value(f16_bits({}))", a);
    case ScalarOp::round_bf16: return fmt::format("bf16_value(bf16_bits({}))", a);
    case ScalarOp::convert: return device_convert(i.from, i.dtype, a);
    case ScalarOp::arg: break;
  }
  LATHE_CHECK(false, "{}", to_string(i.op));
  return "";
}

}  // namespace

std::string render_instrs(std::span<const ScalarInstr> instrs, std::string_view prefix, std::string_view indent,
                          const std::function<std::string(int32_t)>& arg) {
  std::string text;
  const auto name = [&](int32_t k) { return k < 0 ? std::string() : fmt::format("{}{}", prefix, k); };
  for (size_t k = 0; k < instrs.size(); ++k) {
    const ScalarInstr& i = instrs[k];
    const std::string value = i.op == ScalarOp::arg ? arg(i.a) : expression(i, name(i.a), name(i.b), name(i.c));
    text += fmt::format("{}const {} {}{} = {};\n", indent, device_type(i.dtype), prefix, k, value);
  }
  return text;
}

}  // namespace lathe
