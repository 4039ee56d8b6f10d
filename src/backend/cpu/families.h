// The kernel families of the cpu backend: each gives its rows of the table. One source file per family.
#pragma once

#include <vector>

#include "backend/backend.h"

namespace lathe::cpu {

std::vector<KernelTable::Row> arg_max_rows();
std::vector<KernelTable::Row> avg_pool_rows();
std::vector<KernelTable::Row> batch_norm_rows();
std::vector<KernelTable::Row> concat_rows();
std::vector<KernelTable::Row> conv2d_rows();
std::vector<KernelTable::Row> gather_rows();
std::vector<KernelTable::Row> iota_rows();
std::vector<KernelTable::Row> layer_norm_rows();
std::vector<KernelTable::Row> loop_rows();
std::vector<KernelTable::Row> matmul_rows();
std::vector<KernelTable::Row> max_pool_rows();
std::vector<KernelTable::Row> pad_rows();
std::vector<KernelTable::Row> random_uniform_rows();
std::vector<KernelTable::Row> slice_rows();
std::vector<KernelTable::Row> softmax_rows();
std::vector<KernelTable::Row> sort_rows();
std::vector<KernelTable::Row> transpose_rows();

// For kernels that take every type.
inline std::string accepts_all(const Site&) { return ""; }
// For those of f32 and f64, and of the rest as it is: cpu_widened runs them on the 16-bit types.
std::string accepts_wide(const Site&);

// After the rows of all families, from which it takes kernels for f32.
std::vector<KernelTable::Row> widened_rows();

}  // namespace lathe::cpu
