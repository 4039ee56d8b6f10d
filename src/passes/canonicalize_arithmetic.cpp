// Rows about numbers. Each is an identity of IEEE arithmetic, bit for bit, but for the sign of zero in add_zero.
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "passes/canonicalize.h"

namespace lathe {
namespace {

bool is_constant(const Match& m, Value v, double c) {
  const auto value = m.constant(v);
  return value && *value == c;
}

// x op c -> x
Value drop_right(const Match& m, double c) { return is_constant(m, m.x[1], c) ? m.x[0] : Value(); }

// Constants stand on the right, so that every other row has one form to match.
Value constant_right(const Match& m) {
  if (!m.constant(m.x[0]) || m.constant(m.x[1])) return {};
  return binary(m.n.op->name(), m.x[1], m.x[0]);
}

// Every value of `from` is a value of `to`.
bool is_lossless(DType from, DType to) {
  if (from == to || from == DType::b8) return true;
  switch (to) {
    case DType::f64: return from != DType::i64;
    case DType::f32: return from == DType::u8 || is_16bit(from);
    case DType::f16:
    case DType::bf16: return from == DType::u8;
    case DType::i64: return from == DType::i32 || from == DType::u8;
    case DType::i32: return from == DType::u8;
    case DType::u8:
    case DType::b8: return false;
  }
  return false;
}

Value cast_of_cast(const Match& m) {
  if (!m.is(m.x[0], "cast")) return {};
  const Value inner = m.arg(m.x[0]);
  // bool is not a narrow integer: a cast to it asks `x != 0`, which a lossless detour does not change.
  return is_lossless(inner.dtype(), m.x[0].dtype()) ? cast(inner, m.out.dtype) : Value();
}

Value select_of_constant(const Match& m) {
  const auto c = m.constant(m.x[0]);
  return c ? (*c != 0 ? m.x[1] : m.x[2]) : Value();
}

constexpr Rule kArithmeticRules[] = {
    {"add_constant_right", "add", constant_right},
    {"mul_constant_right", "mul", constant_right},
    {"eq_constant_right", "eq", constant_right},
    {"and_constant_right", "logical_and", constant_right},
    {"or_constant_right", "logical_or", constant_right},
    {"add_zero", "add", [](const Match& m) { return drop_right(m, 0); }},
    {"sub_zero", "sub", [](const Match& m) { return drop_right(m, 0); }},
    {"mul_one", "mul", [](const Match& m) { return drop_right(m, 1); }},
    {"div_one", "div", [](const Match& m) { return drop_right(m, 1); }},
    {"and_true", "logical_and", [](const Match& m) { return drop_right(m, 1); }},
    {"or_false", "logical_or", [](const Match& m) { return drop_right(m, 0); }},
    {"add_neg", "add", [](const Match& m) { return m.is(m.x[1], "neg") ? sub(m.x[0], m.arg(m.x[1])) : Value(); }},
    {"neg_add", "add", [](const Match& m) { return m.is(m.x[0], "neg") ? sub(m.x[1], m.arg(m.x[0])) : Value(); }},
    {"sub_neg", "sub", [](const Match& m) { return m.is(m.x[1], "neg") ? add(m.x[0], m.arg(m.x[1])) : Value(); }},
    {"neg_neg", "neg", [](const Match& m) { return m.is(m.x[0], "neg") ? m.arg(m.x[0]) : Value(); }},
    {"not_not", "logical_not", [](const Match& m) { return m.is(m.x[0], "logical_not") ? m.arg(m.x[0]) : Value(); }},
    {"select_constant", "select", select_of_constant},
    {"select_same", "select", [](const Match& m) { return m.x[1].id() == m.x[2].id() ? m.x[1] : Value(); }},
    {"cast_same", "cast", [](const Match& m) { return m.x[0].dtype() == m.out.dtype ? m.x[0] : Value(); }},
    {"cast_cast", "cast", cast_of_cast},
};

}  // namespace

std::span<const Rule> arithmetic_rules() { return kArithmeticRules; }

}  // namespace lathe
