#include "backend/cpu/loop_reduce.h"

#include <algorithm>

#include "base/checked.h"

namespace lathe::cpu {
namespace {

constexpr int64_t kRowChunk = 16384;     // values of a row that make one partial result
constexpr int64_t kColumnChunk = 65536;  // values of a column block that make one row of partial results
constexpr int64_t kTask = 32768;         // values per task, where results are small
constexpr int64_t kWide = 128;           // values that are summed side by side, where there are fewer columns
constexpr int64_t kFoldRows = 8;         // rows of a block from which on it is summed on its own
constexpr int64_t kStrip = 1024;         // columns per task of a wide column reduction: at most one block

// Values [begin, begin + n) of what is reduced.
class Source {
 public:
  Source(const LoopCode* code, const std::byte* array, int64_t size, LoopFrame& frame, int64_t most)
      : code_(code), array_(array), size_(size), frame_(frame) {
    if (code_) code_->enter(frame_, most);
  }
  const void* values(int64_t begin, int64_t n) { return code_ ? code_->run(frame_, begin, n) : array_ + begin * size_; }

 private:
  const LoopCode* code_;
  const std::byte* array_;
  int64_t size_;
  LoopFrame& frame_;
};

// Whole rows of `width` values per block: as many as fit, in multiples of the code's pattern and of 16 where possible.
int64_t rows_per_block(int64_t block, int64_t period, int64_t width) {
  int64_t rows = block / width;
  for (int64_t step : {std::max<int64_t>(1, period / width) * 16, std::max<int64_t>(1, period / width), int64_t{16}})
    if (rows >= step) return rows / step * step;
  return std::max<int64_t>(rows, 1);
}

}  // namespace

std::vector<ReduceStage> reduce_stages(const Shape& domain, const Ints& axes) {
  struct Dim {
    int64_t size;
    bool reduced;
  };
  std::vector<Dim> dims;
  for (int d = 0; d < domain.ndim(); ++d) {
    const bool reduced = std::ranges::find(axes, int64_t{d}) != axes.end();
    if (domain[d] == 1) continue;
    if (!dims.empty() && dims.back().reduced == reduced)
      dims.back().size *= domain[d];
    else
      dims.push_back({domain[d], reduced});
  }
  std::vector<ReduceStage> stages;
  while (true) {
    size_t at = dims.size();
    while (at > 0 && !dims[at - 1].reduced) --at;
    if (at == 0) break;
    --at;
    ReduceStage s;
    s.len = dims[at].size;
    for (size_t i = 0; i < at; ++i) s.outer *= dims[i].size;
    for (size_t i = at + 1; i < dims.size(); ++i) s.inner *= dims[i].size;
    s.chunk = s.inner == 1 ? kRowChunk : std::max<int64_t>(64, kColumnChunk / std::max<int64_t>(1, s.inner));
    s.chunk = std::max<int64_t>(1, std::min(s.chunk, s.len));
    s.chunks = std::max<int64_t>(1, ceil_div(s.len, s.chunk));  // a sum of nothing is one chunk of nothing
    stages.push_back(s);
    if (s.chunks > 1) {
      dims[at].size = s.chunks;
    } else {
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(at));
      // Kept dimensions that have become neighbours are one.
      if (at > 0 && at < dims.size() && dims[at - 1].reduced == dims[at].reduced) {
        dims[at - 1].size *= dims[at].size;
        dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
  }
  if (stages.empty()) {  // nothing to reduce: one row
    ReduceStage s;
    s.inner = domain.numel();
    stages.push_back(s);
  }
  return stages;
}

void run_reduce_stage(ThreadPool& pool, const ReduceStage& s, const LoopCode* code, const std::byte* source,
                      const LoopAccumulate& acc, const LoopAccumulate& fold, std::byte* result) {
  const int64_t size = size_of(acc.dtype);
  const int64_t value_size = code ? code->keep_size() : size;
  const int64_t block = code ? code->block() : kStrip, period = code ? code->period() : 1;
  if (s.result_numel() == 0) return;
  if (s.len == 0) {
    acc.start(result, s.result_numel());
    return;
  }

  if (s.inner == 1 && s.len <= block) {  // several rows per block
    const int64_t rows = rows_per_block(block, period, s.len);
    const int64_t per_task = round_up(std::max<int64_t>(1, kTask / s.len), rows);
    pool.run_blocks(s.outer, per_task, [&](int64_t begin, int64_t end) {
      LoopFrame frame;
      Source x(code, source, size, frame, rows * s.len);
      acc.start(result + begin * size, end - begin);
      for (int64_t r = begin; r < end; r += rows) {
        const int64_t n = std::min(rows, end - r);
        acc.rows(result + r * size, x.values(r * s.len, n * s.len), n, s.len);
      }
    });
    return;
  }
  if (s.inner == 1) {  // chunks of long rows
    const int64_t per_task = std::max<int64_t>(1, kTask / s.chunk);
    pool.run_blocks(s.outer * s.chunks, per_task, [&](int64_t first, int64_t last) {
      LoopFrame frame;
      Source x(code, source, size, frame, block);
      acc.start(result + first * size, last - first);
      for (int64_t u = first; u < last; ++u) {
        const int64_t begin = u % s.chunks * s.chunk, end = std::min(begin + s.chunk, s.len),
                      row = u / s.chunks * s.len;
        for (int64_t i = begin; i < end; i += block) {
          const int64_t n = std::min(block, end - i);
          acc.rows(result + u * size, x.values(row + i, n), 1, n);
        }
      }
    });
    return;
  }
  if (s.inner <= block) {  // several rows of columns per block
    const int64_t rows = rows_per_block(block, period, s.inner);
    const int64_t per_task = std::max<int64_t>(1, kTask / (s.chunk * s.inner));
    // Few columns are summed side by side, `group` rows as one: vectors stay full, and sums stay short.
    const int64_t group = std::max<int64_t>(1, std::min(rows, kWide / s.inner)), wide = group * s.inner;
    pool.run_blocks(s.outer * s.chunks, per_task, [&](int64_t first, int64_t last) {
      LoopFrame frame;
      alignas(64) std::byte local[kStrip * sizeof(double)];
      Source x(code, source, size, frame, rows * s.inner);
      acc.start(result + first * s.inner * size, (last - first) * s.inner);
      for (int64_t u = first; u < last; ++u) {
        const int64_t begin = u % s.chunks * s.chunk, end = std::min(begin + s.chunk, s.len),
                      base = u / s.chunks * s.len;
        for (int64_t r = begin; r < end; r += rows) {
          const int64_t n = std::min(rows, end - r), groups = n / group;
          const std::byte* values = static_cast<const std::byte*>(x.values((base + r) * s.inner, n * s.inner));
          std::byte* y = result + u * s.inner * size;
          if (n >= kFoldRows) {
            acc.start(local, wide);
            acc.columns(local, values, groups, wide);
            fold.columns(y, local, group, s.inner);
            acc.columns(y, values + groups * wide * value_size, n - groups * group, s.inner);
          } else {
            acc.columns(y, values, n, s.inner);
          }
        }
      }
    });
    return;
  }
  const int64_t strip = std::min(block, kStrip), strips = ceil_div(s.inner, strip);
  pool.run(s.outer * s.chunks * strips, [&](int64_t task) {
    LoopFrame frame;
    Source x(code, source, size, frame, strip);
    const int64_t u = task / strips, col = task % strips * strip, n = std::min(strip, s.inner - col);
    const int64_t begin = u % s.chunks * s.chunk, end = std::min(begin + s.chunk, s.len), base = u / s.chunks * s.len;
    std::byte* y = result + (u * s.inner + col) * size;
    acc.start(y, n);
    for (int64_t r = begin; r < end; ++r) acc.columns(y, x.values((base + r) * s.inner + col, n), 1, n);
  });
}

}  // namespace lathe::cpu
