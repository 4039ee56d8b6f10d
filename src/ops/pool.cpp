#include "ops/pool.h"

#include "base/checked.h"

namespace lathe {
namespace {

int64_t pool_out(const char* op, const char* what, int64_t in, int64_t kernel, int64_t stride, int64_t before,
                 int64_t after) {
  const int64_t out = window_axis(op, what, in, kernel, stride, before, after).out;
  LATHE_USER_CHECK(before < kernel && after < kernel, "{}: {}: padding {} and {} must be less than the kernel, {}", op,
                   what, before, after, kernel);
  return out;
}

}  // namespace

PoolGeometry pool_geometry(const char* op, const Shape& x, const PoolParams& p) {
  LATHE_USER_CHECK(x.ndim() == 4, "{}: expected 4 dimensions, got {}", op, to_string(x));
  checked_mul(p.kernel_h, p.kernel_w, op);
  PoolGeometry g{};
  g.batch = x[0];
  g.in_h = x[1];
  g.in_w = x[2];
  g.channels = x[3];
  g.kernel_h = p.kernel_h;
  g.kernel_w = p.kernel_w;
  g.stride_h = p.stride_h;
  g.stride_w = p.stride_w;
  g.pad_top = p.pad_top;
  g.pad_left = p.pad_left;
  g.out_h = pool_out(op, "height", g.in_h, p.kernel_h, p.stride_h, p.pad_top, p.pad_bottom);
  g.out_w = pool_out(op, "width", g.in_w, p.kernel_w, p.stride_w, p.pad_left, p.pad_right);
  return g;
}

std::vector<PoolSample> pool_samples() {
  return {
      {"2x2", {2, 6, 4, 3}, {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2}},
      {"overlap",
       {1, 7, 7, 5},
       {.kernel_h = 3,
        .kernel_w = 3,
        .stride_h = 2,
        .stride_w = 2,
        .pad_top = 1,
        .pad_bottom = 1,
        .pad_left = 1,
        .pad_right = 1}},
      {"ragged", {1, 5, 7, 2}, {.kernel_h = 2, .kernel_w = 3, .stride_h = 2, .stride_w = 2}},
      {"asymmetric",
       {2, 4, 5, 3},
       {.kernel_h = 3, .kernel_w = 2, .stride_h = 1, .stride_w = 2, .pad_top = 2, .pad_right = 1}},
      // As many windows as tiles would be, but one step off: the first is cut, and the last row and column are in none.
      {"shifted",
       {1, 4, 6, 5},
       {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2, .pad_top = 1, .pad_left = 1}},
      {"global", {2, 4, 4, 6}, {.kernel_h = 4, .kernel_w = 4}},
      {"skips", {1, 7, 7, 2}, {.kernel_h = 1, .kernel_w = 2, .stride_h = 3, .stride_w = 3}},
      {"channels", {1, 4, 4, 37}, {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2}},
      {"no_samples", {0, 4, 4, 3}, {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2}}};
}

}  // namespace lathe
