// Renders scalar instructions (ops/scalar.h) as statements of the common dialect. The one place where the meaning of
// ScalarOp is written for devices.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "ops/scalar.h"

namespace lathe {

std::string_view device_type(DType);              // "float", "uchar", ...; of the 16-bit floats: that of their bits
std::string device_literal(DType, double value);  // rounded to the type first
std::string device_convert(DType from, DType to, const std::string& x);
// What stands in memory as `stored`, as a value of `computed`, and back: between bits and f32 for the 16-bit floats. Of
// one type they are moved as they are.
std::string device_load(DType stored, DType computed, const std::string& x);
std::string device_store(DType stored, DType computed, const std::string& x);
DType accumulator_type(DType);  // integers are summed in i64 and saturate at the end

// One line per instruction: `const float m3 = m1 + m2;`, names are prefix + number. `arg` gives the text of argument
// number i (ScalarInstr::a).
std::string render_instrs(std::span<const ScalarInstr>, std::string_view prefix, std::string_view indent,
                          const std::function<std::string(int32_t)>& arg);

}  // namespace lathe
