// Y = A^T [ (G g G^T) . (B^T d B) ] A for each 2x2 tile of results, d its 4x4 pixels: the products of one of the 16
// positions, over all tiles and channels, are one matrix product. Vectors run over channels.
//
// The weights are transformed and packed once; then a task takes some tiles through all three stages, so that what lies
// between the stages stays in its core's cache.
#include "backend/cpu/conv/winograd.h"

#include <algorithm>

#include "backend/cpu/gemm/gemm_kernel.h"
#include "backend/cpu/gemm/gemm_plan.h"
#include "base/checked.h"
#include "base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/conv/winograd.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/row_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::cpu::HWY_NAMESPACE {
namespace {

// dst[i * stride + c] = (B^T d B)[i], d[i] = pixels[i][c]
void transform_pixels(const float* const* pixels, int64_t n, float* dst, int64_t stride) {
  map_row(n, [&](auto at) HWY_ATTR {
    RowVec t[4][4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const RowVec d0 = at.load(pixels[j]), d1 = at.load(pixels[4 + j]), d2 = at.load(pixels[8 + j]),
                   d3 = at.load(pixels[12 + j]);
      t[0][j] = hn::Sub(d0, d2);
      t[1][j] = hn::Add(d1, d2);
      t[2][j] = hn::Sub(d2, d1);
      t[3][j] = hn::Sub(d1, d3);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      float* row = dst + 4 * i * stride;
      at.store(hn::Sub(t[i][0], t[i][2]), row);
      at.store(hn::Add(t[i][1], t[i][2]), row + stride);
      at.store(hn::Sub(t[i][2], t[i][1]), row + 2 * stride);
      at.store(hn::Sub(t[i][1], t[i][3]), row + 3 * stride);
    }
  });
}

// y[2 * i + j][c] = (A^T m A)[i][j], m[i] = src[i * stride + c]; where y is null, nothing.
void transform_results(const float* src, int64_t stride, int64_t n, float* const* y) {
  map_row(n, [&](auto at) HWY_ATTR {
    RowVec t[2][4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const float* column = src + j * stride;
      const RowVec m0 = at.load(column), m1 = at.load(column + 4 * stride), m2 = at.load(column + 8 * stride),
                   m3 = at.load(column + 12 * stride);
      t[0][j] = hn::Add(hn::Add(m0, m1), m2);
      t[1][j] = hn::Sub(hn::Sub(m1, m2), m3);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      if (y[2 * i]) at.store(hn::Add(hn::Add(t[i][0], t[i][1]), t[i][2]), y[2 * i]);
      if (y[2 * i + 1]) at.store(hn::Sub(hn::Sub(t[i][1], t[i][2]), t[i][3]), y[2 * i + 1]);
    }
  });
}

// dst[i * stride + c] = (G g G^T)[i], g[k] = taps[k][c]
void transform_taps(const float* const* taps, int64_t n, float* dst, int64_t stride) {
  map_row(n, [&](auto at) HWY_ATTR {
    const RowVec half = hn::Set(RowTag(), 0.5f);
    // A row of G: the first, half of sum and of difference, the last.
    const auto four = [&](RowVec g0, RowVec g1, RowVec g2, RowVec(&out)[4]) HWY_ATTR {
      const RowVec ends = hn::Mul(half, hn::Add(g0, g2)), middle = hn::Mul(half, g1);
      out[0] = g0;
      out[1] = hn::Add(ends, middle);
      out[2] = hn::Sub(ends, middle);
      out[3] = g2;
    };
    RowVec t[3][4];
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) four(at.load(taps[j]), at.load(taps[3 + j]), at.load(taps[6 + j]), t[j]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      RowVec u[4];
      four(t[0][i], t[1][i], t[2][i], u);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) at.store(u[j], dst + (4 * i + j) * stride);
    }
  });
}

}  // namespace
}  // namespace lathe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lathe::cpu {
namespace {

HWY_EXPORT(transform_pixels);
HWY_EXPORT(transform_results);
HWY_EXPORT(transform_taps);

constexpr int64_t kPositions = 16;
constexpr int64_t kMostTiles = 64;   // of a task: its products stay in the second-level cache
constexpr int64_t kLeastTiles = 16;  // fewer would read the weights from far for too little work
constexpr int64_t kTasksPerThread = 4;
constexpr int64_t kMostColumns = 96;  // of weights transformed at a time: less than two panels
constexpr int64_t kLeastChannels = 64;
constexpr int64_t kMostWeights = int64_t{16} << 20;  // floats of the transformed weights, which lie in the workspace
constexpr int64_t kMaxLanes = 16;

// The convolution of `in` that gives `out`, either pass: x to y, or dy to dx with the taps turned around.
struct Problem {
  bool turned;
  int64_t in_h, in_w, k;    // k: channels that are summed
  int64_t out_h, out_w, n;  // n: channels of a result
  int64_t pad_top, pad_left;
  int64_t tiles_y, tiles_x, tiles;
  int64_t chunk;  // tiles of a task

  Problem(ConvPass pass, const ConvGeometry& s, int threads) : turned(pass == ConvPass::dx) {
    in_h = turned ? s.out_h : s.in_h;
    in_w = turned ? s.out_w : s.in_w;
    k = turned ? s.out_c : s.in_c;
    out_h = turned ? s.in_h : s.out_h;
    out_w = turned ? s.in_w : s.out_w;
    n = turned ? s.in_c : s.out_c;
    pad_top = turned ? 2 - s.pad_top : s.pad_top;
    pad_left = turned ? 2 - s.pad_left : s.pad_left;
    tiles_y = ceil_div(out_h, 2);
    tiles_x = ceil_div(out_w, 2);
    tiles = s.batch * tiles_y * tiles_x;
    chunk = std::clamp(round_up(tiles / (kTasksPerThread * std::max(threads, 1)), 8), kLeastTiles, kMostTiles);
  }

  // Floats of the workspace: packed weights, zeros for what is outside of the image, then each thread's own.
  int64_t packed() const { return kPositions * round_up(n, kMaxLanes) * k; }
  int64_t zeros() const { return round_up(k, kMaxLanes); }
  int64_t own() const { return round_up(kPositions * std::max(chunk * (k + n), kMostColumns * k), kMaxLanes); }
};

struct Winograd {
  const Problem p;
  const GemmKernels kernels = gemm_kernels();
  const int64_t k_blocks, kc;
  float *packed, *zeros, *scratch;

  Winograd(const Problem& problem, int threads, std::span<std::byte> workspace)
      : p(problem),
        k_blocks(p.k <= kernels.geometry.kc_alone ? 1 : ceil_div(p.k, kernels.geometry.kc)),
        kc(ceil_div(p.k, k_blocks)),
        packed(reinterpret_cast<float*>(workspace.data())),
        zeros(packed + p.packed()),
        scratch(zeros + p.zeros()) {
    const int64_t floats = p.packed() + p.zeros() + threads * p.own();
    LATHE_CHECK(floats * static_cast<int64_t>(sizeof(float)) <= static_cast<int64_t>(workspace.size()),
                "winograd: workspace of {} bytes is too small", workspace.size());
  }

  float* own(int64_t slot) const { return scratch + slot * p.own(); }
  // The panels of one position and k block.
  float* panels(int64_t position, int64_t block) const {
    return packed + (position * p.k + block * kc) * round_up(p.n, kMaxLanes);
  }

  // Columns [j0, j0 + count) of the transformed weights. w is [o, 3, 3, c]; turned, its o are what is summed.
  void pack_weights(const float* w, int64_t j0, int64_t count, float* space) const {
    const int64_t rows = p.turned ? p.k : count, width = p.turned ? count : p.k, c = p.turned ? p.n : p.k;
    const int64_t stride = rows * width;
    for (int64_t r = 0; r < rows; ++r) {
      const float* filter = w + (p.turned ? r * 9 * c + j0 : (j0 + r) * 9 * c);
      const float* taps[9];
      for (int64_t t = 0; t < 9; ++t) taps[t] = filter + (p.turned ? 8 - t : t) * c;
      HWY_DYNAMIC_DISPATCH(transform_taps)(taps, width, space + r * width, stride);
    }
    for (int64_t position = 0; position < kPositions; ++position) {
      const Operand<float> b = rhs(space + position * stride, width, !p.turned);
      for (int64_t block = 0; block < k_blocks; ++block) {
        const int64_t p0 = block * kc, pn = std::min(kc, p.k - p0);
        kernels.pack_b(b, 0, count, p0, pn, panels(position, block) + j0 * pn);
      }
    }
  }

  // f(tile's image, its row and column of results) for tiles [first, first + count)
  template <class F>
  void for_tiles(int64_t first, int64_t count, F&& f) const {
    for (int64_t t = first; t < first + count; ++t)
      f(t - first, t / (p.tiles_y * p.tiles_x), t / p.tiles_x % p.tiles_y * 2, t % p.tiles_x * 2);
  }

  void run_chunk(const float* in, float* out, int64_t first, int64_t count, const Epilogue<float>& e,
                 float* space) const {
    float* v = space;                             // [position, tile, k]
    float* m = space + kPositions * count * p.k;  // [position, tile, n]
    for_tiles(first, count, [&](int64_t tile, int64_t image, int64_t i, int64_t j) {
      const float* pixels[kPositions];
      for (int64_t a = 0; a < 4; ++a) {
        const int64_t y = i + a - p.pad_top;
        for (int64_t b = 0; b < 4; ++b) {
          const int64_t x = j + b - p.pad_left;
          const bool inside = y >= 0 && y < p.in_h && x >= 0 && x < p.in_w;
          pixels[4 * a + b] = inside ? in + ((image * p.in_h + y) * p.in_w + x) * p.k : zeros;
        }
      }
      HWY_DYNAMIC_DISPATCH(transform_pixels)(pixels, p.k, v + tile * p.k, count * p.k);
    });
    for (int64_t position = 0; position < kPositions; ++position) {
      for (int64_t block = 0; block < k_blocks; ++block) {
        Block product;
        product.mb = count;
        product.nb = p.n;
        product.kc = std::min(kc, p.k - block * kc);
        product.a = v + position * count * p.k + block * kc;
        product.a_row = p.k;
        product.a_k = 1;
        product.b = panels(position, block);
        product.c = m + position * count * p.n;
        product.ldc = p.n;
        product.add = block > 0;
        kernels.multiply(product);
      }
    }
    RowEpilogue finish;
    finish.bias_col = e.bias_col;
    finish.bias_row = e.bias_row;
    finish.residual = e.residual;
    finish.c_origin = out;
    finish.relu = e.relu;
    const bool finishes = e.bias_col || e.bias_row || e.residual || e.relu;
    for_tiles(first, count, [&](int64_t tile, int64_t image, int64_t i, int64_t j) {
      float* y[4];
      int64_t pixel[4];
      for (int64_t a = 0; a < 4; ++a) {
        const int64_t row = i + a / 2, column = j + a % 2;
        pixel[a] = (image * p.out_h + row) * p.out_w + column;
        y[a] = row < p.out_h && column < p.out_w ? out + pixel[a] * p.n : nullptr;
      }
      HWY_DYNAMIC_DISPATCH(transform_results)(m + tile * p.n, count * p.n, p.n, y);
      for (int64_t a = 0; a < 4; ++a) {
        if (!y[a]) continue;
        if (finishes) kernels.finish_row(finish, y[a], pixel[a], 0, p.n);
        if (e.post) e.post(e.context, y[a], pixel[a], 0, p.n);
      }
    });
  }

  void run(ThreadPool& pool, const float* in, const float* w, float* out, const Epilogue<float>& e) const {
    std::fill(zeros, zeros + p.zeros(), 0.0f);
    const Cut columns = Cut::last_longer(p.n, kernels.geometry.nr());
    pool.run_slots(pool.threads(), columns.count(), [&](int64_t task, int64_t slot) {
      pack_weights(w, columns.begin(task), columns.size(task), own(slot));
    });
    pool.run_slots(pool.threads(), ceil_div(p.tiles, p.chunk), [&](int64_t task, int64_t slot) {
      const int64_t first = task * p.chunk;
      run_chunk(in, out, first, std::min(p.chunk, p.tiles - first), e, own(slot));
    });
  }
};

}  // namespace

std::string winograd_declines(ConvPass pass, const ConvGeometry& s) {
  if (pass == ConvPass::dw) return "sums over pixels";
  if (s.kernel_h != 3 || s.kernel_w != 3)
    return fmt::format("for kernels of 3x3, this is {}x{}", s.kernel_h, s.kernel_w);
  if (s.stride_h != 1 || s.stride_w != 1) return "has no stride";
  if (s.dilation_h != 1 || s.dilation_w != 1) return "has no dilation";
  if (s.groups != 1) return "has no groups";
  if (std::min(s.in_c, s.out_c) < kLeastChannels)
    return fmt::format("pays from {} channels on, these are {} and {}", kLeastChannels, s.in_c, s.out_c);
  if (s.in_c > kMostWeights / kPositions / s.out_c)
    return fmt::format("its weights, transformed, would have more than {} MiB", kMostWeights >> 18);
  return "";
}

int64_t winograd_workspace(ConvPass pass, const ConvGeometry& s, int threads) {
  const Problem p(pass, s, threads);
  return (p.packed() + p.zeros() + std::max(threads, 1) * p.own()) * static_cast<int64_t>(sizeof(float));
}

void winograd_forward(ThreadPool& pool, const ConvGeometry& s, float* y, const float* x, const float* w,
                      const Epilogue<float>& e, std::span<std::byte> workspace) {
  Winograd({ConvPass::forward, s, pool.threads()}, pool.threads(), workspace).run(pool, x, w, y, e);
}

void winograd_dx(ThreadPool& pool, const ConvGeometry& s, float* dx, const float* dy, const float* w,
                 std::span<std::byte> workspace) {
  Winograd({ConvPass::dx, s, pool.threads()}, pool.threads(), workspace).run(pool, dy, w, dx, {});
}

}  // namespace lathe::cpu
#endif
