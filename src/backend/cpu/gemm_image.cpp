#include "backend/cpu/gemm_image.h"

#include <algorithm>

namespace lathe::cpu {

namespace {

// Channels: shorter runs cost the kernel more than packing does.
constexpr int64_t kShortestRun = 8;

}  // namespace

bool lists_runs(const Operand<float>& op, const Geometry& g, int64_t pn) {
  if (op.kind != Operand<float>::Kind::image || op.view.c < kShortestRun) return false;
  const int64_t most_runs = pn / op.view.c + 2;
  return most_runs * static_cast<int64_t>(sizeof(RowRun)) <= pn * g.mr * static_cast<int64_t>(sizeof(float));
}

void list_runs(const Operand<float>& op, int64_t mr, int64_t r0, int64_t rn, int64_t p0, int64_t pn, float* dst) {
  struct Row {
    const float* image;
    int64_t y, x;
  };
  const ImageView& v = op.view;
  CellWalk cell(op, r0);
  for (int64_t i = 0; i < rn; i += mr) {
    auto* run = reinterpret_cast<RowRun*>(dst + i * pn);
    const int64_t count = std::min(mr, rn - i);
    Row rows[kMaxMr];
    bool whole_rows = taps_touch(v);  // all taps of a row lie inside the image, and are one run
    for (int64_t r = 0; r < count; ++r, cell.advance()) {
      rows[r] = {cell.image(), cell.y(), cell.x()};
      whole_rows = whole_rows && rows[r].x >= 0 && rows[r].x + v.taps_x <= v.w;
    }
    TapPosition at(p0, v.taps_x, v.c);
    for (int64_t left = pn; left > 0; ++run) {
      const int64_t taps = whole_rows ? v.taps_x - at.x : 1;
      run->length = std::min(taps * v.c - at.inner, left);
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

}  // namespace lathe::cpu
