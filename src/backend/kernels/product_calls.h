// Launches of product.k: matmul, convolution and its gradients are products whose operands are read in different ways.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/kernels/call.h"
#include "ops/loop.h"

namespace lathe {

// Sizes of the tiles of product.k, and what goes with them in the other heavy texts, per class of device. `lathe bench
// tune-device` measures them.
struct ProductTiles {
  LaunchStyle style = LaunchStyle::narrow;
  // Narrow: a register tile of micro_rows x 2 vectors; a packed panel is `depth` deep and serves `rows_per` rows.
  int vector_bytes = 64;
  int micro_rows = 8;
  int depth = 256;
  int rows_per = 384;
  // Wide: a group computes tile_rows x tile_cols, an item item_rows x item_cols, through local tiles wide_depth deep.
  int tile_rows = 64, tile_cols = 64, item_rows = 4, item_cols = 4;
  int wide_depth = 16;
  // attention.k: rows of each side that a group keeps, 16, 32 or 64; fewer where heads are wide, where the sequence is
  // short or where they would not fit `local_bytes`, which the device says.
  int attention_rows = 16;
  int local_bytes = 32768;
  // Wide: work-items of a group of loops, elementwise and reductions; 0: group_items().
  int loop_items = 0;

  int group_size() const { return tile_rows / item_rows * (tile_cols / item_cols); }
  friend bool operator==(const ProductTiles&, const ProductTiles&) = default;
};
// "" or why these sizes make no kernel (a group of at most `largest_group` items, `local_bytes` of local memory).
std::string check_tiles(const ProductTiles&, int64_t largest_group, int64_t local_bytes);

// An image as the matrix of its patches; see product.k.
struct PatchView {
  int64_t h = 1, w = 1, pitch = 1, channels = 1;
  int64_t grid_h = 1, grid_w = 1, taps_x = 1;
  int64_t base_y = 0, base_x = 0, step_y = 1, step_x = 1, delta_y = 1, delta_x = 1;
};

// Element (row, column) of an operand stands at batch * s + row * i + col * j; images and taps read `batch` (and b_taps
// `row`: the distance of two inner indices) alone.
struct Strides {
  int64_t batch = 0, row = 0, col = 0;
};

// Elementwise work on each element of the product, over the matrix of all its elements (rows x cols). Instructions
// with arg kProductArg read the product.
struct ProductEpilogue {
  struct Read {
    int input = 0;  // of the node
    DType dtype = DType::f32;
    int64_t row = 0, col = 0;  // strides
  };
  std::vector<Read> reads;
  std::vector<ScalarInstr> instrs;
  std::vector<LoopStore> stores;           // dense
  int64_t batch_rows = 0, batch_cols = 0;  // where a batch starts in that matrix
  int64_t cols = 1;                        // of that matrix
};
constexpr int32_t kProductArg = -1;

struct Product {
  DType dtype = DType::f32;     // in which it sums
  std::optional<DType> stored;  // of a, b and c where that is another, a 16-bit one; for the wide form alone
  int64_t batch = 1, m = 1, n = 1, k = 1;
  CallArg c, a, b;
  Strides a_strides, b_strides;
  int64_t c_batch = 0, c_row = 0;
  std::optional<PatchView> a_image, b_image;
  struct Taps {
    int64_t taps_x = 1, inner = 1, y = 0, x = 0;
  };
  std::optional<Taps> b_taps;
  struct Grid {
    int64_t image = 0, line = 0, h = 1, w = 1;
  };
  std::optional<Grid> c_grid;
  std::optional<ProductEpilogue> epilogue;  // only where product_splits is 1
};

// Pieces of k that are summed apart; depends on the sizes alone. More than 1: c must be dense and workspace is needed.
int64_t product_splits(const Product&);
int64_t product_workspace(const Product&);  // bytes
std::vector<KernelCall> product_calls(const Product&, const ProductTiles&);

}  // namespace lathe
