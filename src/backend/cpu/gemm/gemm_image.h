// Walking an image operand: shared by packing (gemm_pack.cpp) and the lists of runs (gemm_image.cpp).
#pragma once

#include <cstdint>

#include "backend/cpu/gemm/gemm_kernel.h"

namespace lathe::cpu {

// What padding reads.
alignas(64) inline constexpr float kZeros[kMaxKc] = {};

// Position of an element of k among (tap_y, tap_x, inner).
struct TapPosition {
  int64_t y, x, inner;
  TapPosition(int64_t p, int64_t taps_x, int64_t count)
      : y(p / count / taps_x), x(p / count % taps_x), inner(p % count) {}
};

// The cells of an image view's grid in order.
class CellWalk {
 public:
  CellWalk(const Operand<float>& op, int64_t cell)
      : view_(op.view),
        j_(cell % view_.grid_w),
        i_(cell / view_.grid_w % view_.grid_h),
        image_(op.data + cell / view_.grid_w / view_.grid_h * view_.h * view_.w * view_.pitch) {}

  const float* image() const { return image_; }
  int64_t y() const { return i_ * view_.step_y + view_.base_y; }  // pixel of tap (0, 0)
  int64_t x() const { return j_ * view_.step_x + view_.base_x; }
  int64_t column() const { return j_; }

  // Moves on by count cells, not beyond the first one of the next row.
  void advance(int64_t count = 1) {
    j_ += count;
    if (j_ < view_.grid_w) return;
    j_ = 0;
    if (++i_ < view_.grid_h) return;
    i_ = 0;
    image_ += view_.h * view_.w * view_.pitch;
  }

 private:
  const ImageView& view_;
  int64_t j_, i_;
  const float* image_;
};

// Neighbouring taps of one image row follow each other in memory.
inline bool taps_touch(const ImageView& v) { return v.delta_x == 1 && v.pitch == v.c; }
inline bool inside(int64_t i, int64_t n) { return static_cast<uint64_t>(i) < static_cast<uint64_t>(n); }

// No cell has a tap outside the image.
bool never_outside(const ImageView&);

// Whether a panel of A over k range [p0, p0 + pn) is a list of runs, so that elements of the image need not be copied
// kh * kw times: where runs are long enough to pay, and the list takes no more room than the packed floats would.
bool lists_runs(const Operand<float>&, const Geometry&, int64_t p0, int64_t pn);

// Lists rows [r0, r0 + rn) as panels of `mr` rows, each at the place of its packed floats.
void list_runs(const Operand<float>&, int64_t mr, int64_t r0, int64_t rn, int64_t p0, int64_t pn, float* dst);

}  // namespace lathe::cpu
