// Sums over the rows of a matrix [rows, C] for the norm kernels, in two steps whose order depends on the shape alone:
// partial sums of chunks of rows in f32 (one task each), then the chunks of each column in order, in f64.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/checked.h"
#include "base/thread_pool.h"

namespace lathe::cpu {

struct RowChunks {
  int64_t rows = 0, chunk = 1, count = 0;
  // About `elements` values per chunk, at least `least` rows.
  static RowChunks of(int64_t rows, int64_t columns, int64_t elements, int64_t least) {
    RowChunks c;
    c.rows = rows;
    c.chunk = std::max(least, elements / std::max<int64_t>(1, columns));
    c.count = ceil_div(rows, c.chunk);
    return c;
  }
  int64_t begin(int64_t i) const { return i * chunk; }
  int64_t end(int64_t i) const { return std::min(rows, (i + 1) * chunk); }
};

inline constexpr int64_t kColumnsPerTask = 256;

// Calls f(column, sum of partial[i][column] over i) for every column; partial is [count, stride].
template <class F>
void combine_columns(ThreadPool& pool, int64_t count, int64_t columns, const float* partial, int64_t stride, F&& f) {
  pool.run_blocks(columns, kColumnsPerTask, [&](int64_t begin, int64_t end) {
    double sum[kColumnsPerTask] = {};
    for (int64_t i = 0; i < count; ++i)
      for (int64_t c = begin; c < end; ++c) sum[c - begin] += static_cast<double>(partial[i * stride + c]);
    for (int64_t c = begin; c < end; ++c) f(c, sum[c - begin]);
  });
}

}  // namespace lathe::cpu
