#include "backend/cpu/gemm/gemm_image.h"

#include <algorithm>

#include "base/error.h"

namespace lathe::cpu {

namespace {

using Kind = Operand<float>::Kind;

// Channels of an image with padding, where each tap can be a run of its own: shorter ones cost the kernel more than
// packing does.
constexpr int64_t kShortestTap = 8;
constexpr int64_t kShortestGridRow = 8;

// Runs of a panel, at most; pn > 0.
int64_t most_runs(const Operand<float>& op, int64_t p0, int64_t pn) {
  const ImageView& v = op.view;
  const int64_t last = p0 + pn - 1;
  if (op.kind == Kind::image_k) return last / v.grid_w - p0 / v.grid_w + 1;
  const int64_t run = never_outside(v) && taps_touch(v) ? v.taps_x * v.c : v.c;
  return last / run - p0 / run + 1;
}

// Rows are cells. A run is the channels of one tap, or of a row of taps where no row of the panel leaves the image.
template <int kRows>
void list_cells(const Operand<float>& op, int64_t r0, int64_t rn, int64_t p0, int64_t pn, float* dst) {
  struct Row {
    const float* image;
    int64_t y, x;
  };
  const ImageView& v = op.view;
  CellWalk cell(op, r0);
  for (int64_t i = 0; i < rn; i += kRows) {
    auto* run = reinterpret_cast<RowRun<kRows>*>(dst + i * pn);
    const int64_t count = std::min<int64_t>(kRows, rn - i);
    Row rows[kRows];
    bool whole_rows = taps_touch(v);
    for (int64_t r = 0; r < count; ++r, cell.advance()) {
      rows[r] = {cell.image(), cell.y(), cell.x()};
      whole_rows = whole_rows && rows[r].x >= 0 && rows[r].x + v.taps_x <= v.w;
    }
    TapPosition at(p0, v.taps_x, v.c);
    for (int64_t left = pn; left > 0; ++run) {
      const int64_t taps = whole_rows ? v.taps_x - at.x : 1;
      run->length = std::min(taps * v.c - at.inner, left);
      run->step = 1;
      for (int64_t r = 0; r < count; ++r) {
        const int64_t y = rows[r].y + at.y * v.delta_y, x = rows[r].x + at.x * v.delta_x;
        const bool in = inside(y, v.h) && inside(x, v.w);
        run->rows[r] = in ? rows[r].image + (y * v.w + x) * v.pitch + at.inner : kZeros;
      }
      left -= run->length;
      at.inner = 0;
      at.x += taps;
      if (at.x == v.taps_x) {
        at.x = 0;
        ++at.y;
      }
    }
  }
}

// Rows are (tap, channel), k counts cells. A run is a row of the grid.
template <int kRows>
void list_taps(const Operand<float>& op, int64_t r0, int64_t rn, int64_t p0, int64_t pn, float* dst) {
  const ImageView& v = op.view;
  for (int64_t i = 0; i < rn; i += kRows) {
    auto* run = reinterpret_cast<RowRun<kRows>*>(dst + i * pn);
    const int64_t count = std::min<int64_t>(kRows, rn - i);
    int64_t offsets[kRows];
    for (int64_t r = 0; r < count; ++r) {
      const TapPosition at(r0 + i + r, v.taps_x, v.c);
      offsets[r] = (at.y * v.delta_y * v.w + at.x * v.delta_x) * v.pitch + at.inner;
    }
    CellWalk cell(op, p0);
    for (int64_t left = pn; left > 0; ++run) {
      run->length = std::min(v.grid_w - cell.column(), left);
      run->step = v.step_x * v.pitch;
      const float* origin = cell.image() + (cell.y() * v.w + cell.x()) * v.pitch;
      for (int64_t r = 0; r < count; ++r) run->rows[r] = origin + offsets[r];
      left -= run->length;
      cell.advance(run->length);
    }
  }
}

template <int kRows>
void list_panels(const Operand<float>& op, int64_t r0, int64_t rn, int64_t p0, int64_t pn, float* dst) {
  if (op.kind == Kind::image)
    list_cells<kRows>(op, r0, rn, p0, pn, dst);
  else
    list_taps<kRows>(op, r0, rn, p0, pn, dst);
}

}  // namespace

bool never_outside(const ImageView& v) {
  const auto fits = [](int64_t base, int64_t grid, int64_t step, int64_t taps, int64_t delta, int64_t size) {
    return base >= 0 && delta >= 0 && base + (grid - 1) * step + (taps - 1) * delta < size;
  };
  return fits(v.base_y, v.grid_h, v.step_y, v.taps_y, v.delta_y, v.h) &&
         fits(v.base_x, v.grid_w, v.step_x, v.taps_x, v.delta_x, v.w);
}

bool lists_runs(const Operand<float>& op, const Geometry& g, int64_t p0, int64_t pn) {
  const ImageView& v = op.view;
  if (pn == 0) return false;  // no taps
  if (op.kind == Kind::image) {
    if (v.c < kShortestTap && !(never_outside(v) && taps_touch(v))) return false;
  } else if (op.kind != Kind::image_k || !never_outside(v) || v.grid_w < kShortestGridRow) {
    return false;
  }
  const int64_t run_bytes = (2 + g.mr) * static_cast<int64_t>(sizeof(int64_t));
  return most_runs(op, p0, pn) * run_bytes <= pn * g.mr * static_cast<int64_t>(sizeof(float));
}

void list_runs(const Operand<float>& op, int64_t mr, int64_t r0, int64_t rn, int64_t p0, int64_t pn, float* dst) {
  LATHE_CHECK(mr == 4 || mr == 8, "no lists for panels of {} rows", mr);
  if (mr == 8)
    list_panels<8>(op, r0, rn, p0, pn, dst);
  else
    list_panels<4>(op, r0, rn, p0, pn, dst);
}

}  // namespace lathe::cpu
