// What the kernel families of the cpu backend share. A family is a source file with a function that gives its rows of
// the table.
#pragma once

#include <vector>

#include "backend/backend.h"

namespace lathe::cpu {

// The rows of all families; their list is in cpu_backend.cpp.
std::vector<KernelTable::Row> family_rows();

// For kernels that take every type.
inline std::string accepts_all(const Site&) { return ""; }
// For those of f32 and f64, and of the rest as it is; a row of one is kWidened.
std::string accepts_wide(const Site&);
constexpr bool kWidened = true;  // cpu_widened runs it on the 16-bit types

// After the rows of all families: for the ops that have a widened one.
std::vector<KernelTable::Row> widened_rows();

}  // namespace lathe::cpu
