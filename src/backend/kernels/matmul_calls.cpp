#include "backend/kernels/matmul_calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/kernels/render_scalar.h"
#include "base/checked.h"

namespace lathe {
namespace {

constexpr int64_t kTile = 64;          // of the wide form
constexpr int64_t kRowsPer = 192;      // narrow: rows over which one packed panel is used
constexpr int64_t kEnoughGroups = 16;  // narrow: pieces of work for the device's threads

}  // namespace

std::vector<KernelCall> matmul_calls(DType dtype, const Shape& a, const Shape& b, const MatmulParams& p,
                                     LaunchStyle style, int vector_bytes) {
  const MatmulDims d = matmul_dims(a, b, p);
  if (d.batch * d.m * d.n == 0) return {};
  KernelCall call;
  const std::string type(device_type(dtype));
  int64_t rows_per = kTile;
  if (style == LaunchStyle::narrow) {
    const int lanes = std::clamp<int>(vector_bytes / static_cast<int>(size_of(dtype)), 2, 16);
    const int64_t cols = 2 * lanes;
    // Two accumulators per row, two vectors of b and one of a must fit the registers: 32 with 64-byte vectors, else 16.
    const int64_t micro_rows = vector_bytes >= 64 ? 8 : 6;
    call.name = fmt::format("matmul_{}_{}", to_string(dtype), lanes);
    call.source = fmt::format(
        "#define NARROW\n#define VECTOR {0}{1}\n#define QUAD {0}4\n#define LOAD vload{1}\n#define STORE vstore{1}\n"
        "#define NR {2}\n#define MR {3}\n",
        type, lanes, cols, micro_rows);
    const int64_t panels = ceil_div(d.n, cols) * d.batch;
    const int64_t pieces = std::max(ceil_div(d.m, kRowsPer), ceil_div(kEnoughGroups, panels));
    rows_per = round_up(ceil_div(d.m, pieces), micro_rows);
    call.groups = {ceil_div(d.n, cols), ceil_div(d.m, rows_per), d.batch};
  } else {
    call.name = fmt::format("matmul_{}_wide", to_string(dtype));
    call.groups = {ceil_div(d.n, kTile), ceil_div(d.m, kTile), d.batch};
    call.group_size = 256;
  }
  const std::string suffix = call.name.substr(std::string_view("matmul").size());
  call.source += fmt::format("#define REAL {}\n#define NAME(x) x##{}\n{}", type, suffix, kernel_text::matmul);
  for (const char* macro : {"REAL", "NAME", "NARROW", "VECTOR", "QUAD", "LOAD", "STORE", "NR", "MR"})
    call.source += fmt::format("#undef {}\n", macro);

  call.args = {out_arg(0, dtype), in_arg(0, dtype), in_arg(1, dtype)};
  const int64_t a_row = p.trans_a ? 1 : d.k, a_col = p.trans_a ? d.m : 1;
  const int64_t b_row = p.trans_b ? 1 : d.n, b_col = p.trans_b ? d.k : 1;
  for (const int64_t v : {d.m, d.n, d.k, d.m * d.k, a_row, a_col, d.k * d.n, b_row, b_col, rows_per})
    call.args.push_back(integer_arg(v));
  return {call};
}

}  // namespace lathe
