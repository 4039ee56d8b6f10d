// Brings nodes into one form and drops those that do nothing: x + 0, x * 1, a reshape of a reshape. Never changes what
// a NaN or an infinity does (x * 0 and x - x stay); x + 0 may keep the sign of a zero that the sum would lose. Input:
// any verified graph. Runs after fold and layout, whose leftovers it clears, and before cse, which compares forms.
#pragma once

#include "passes/pass.h"
#include "passes/rules.h"

namespace lathe {

Graph canonicalize(Graph, const PassContext&);

std::span<const Rule> arithmetic_rules();  // canonicalize_arithmetic.cpp
std::span<const Rule> shape_rules();       // canonicalize_shape.cpp

}  // namespace lathe
