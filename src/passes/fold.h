// Evaluates nodes whose inputs are all constants and whose result is one number everywhere. In f64: the number is
// rounded to its type where it is used, once. A result that the type cannot hold (overflow, underflow) is left to the
// device. Input: any verified graph. Runs after expand and before canonicalize, whose rules look for the constants 0
// and 1.
#pragma once

#include "passes/pass.h"
#include "passes/rules.h"

namespace lathe {

Graph fold(Graph, const PassContext&);
std::span<const Rule> fold_rules();

}  // namespace lathe
