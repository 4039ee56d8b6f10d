// The support matrix of `lathe devices --ops`: for each op and backend the kernels with the types that they take, and a
// reason for each type without one. Derived from the ops' samples, as the conformance suite is.
#pragma once

#include <nlohmann/json.hpp>

namespace lathe::cli {

// [{"op", "composite", BACKEND: {"types": [...], "kernels": {NAME: [types]}, "expanded": {REASON: [types]},
// "missing": {REASON: [types]}}}]; for a view all of them are empty.
nlohmann::ordered_json op_matrix();
void print_op_matrix(const nlohmann::ordered_json&);

}  // namespace lathe::cli
