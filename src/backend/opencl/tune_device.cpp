#include "backend/opencl/tune_device.h"

#include <algorithm>
#include <cmath>

#include "backend/kernels/conv2d_calls.h"
#include "backend/kernels/matmul_calls.h"
#include "backend/kernels/product_calls.h"
#include "backend/opencl/opencl_backend.h"
#include "backend/opencl/opencl_device.h"
#include "base/checked.h"
#include "base/stopwatch.h"

namespace lathe {
namespace {

// Products of the kinds that training is made of: forward and both gradients of a linear layer and of a convolution.
std::vector<Product> products() {
  std::vector<Product> out;
  const DType t = DType::f32;
  out.push_back(matmul_product(t, {512, 384}, {384, 512}, {}));
  out.push_back(matmul_product(t, {512, 384}, {512, 384}, {.trans_b = true}));
  out.push_back(matmul_product(t, {1024, 256}, {1024, 384}, {.trans_a = true}));
  Conv2dParams p;
  p.pad_top = p.pad_bottom = p.pad_left = p.pad_right = 1;
  const TensorType x{t, {16, 14, 14, 32}}, w{t, {64, 3, 3, 32}}, y{t, {16, 14, 14, 64}};
  out.push_back(conv2d_products(ConvPass::forward, x, w, p)[0]);
  p.size_h = p.size_w = 14;
  out.push_back(conv2d_products(ConvPass::dx, y, w, p)[0]);
  p.size_h = p.size_w = 3;
  out.push_back(conv2d_products(ConvPass::dw, x, y, p)[0]);
  return out;
}

double flops(const Product& p) {
  return 2.0 * static_cast<double>(p.batch * p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
}

std::vector<ProductTiles> candidates(const OpenClDevice& device) {
  std::vector<ProductTiles> out{device.tiles()};
  const auto add = [&](const ProductTiles& t) {
    if (check_tiles(t, device.limits().group, device.limits().local_bytes).empty() &&
        std::ranges::find(out, t) == out.end())
      out.push_back(t);
  };
  ProductTiles t = device.tiles();
  if (t.style == LaunchStyle::narrow) {
    for (const int micro_rows : {4, 6, 8, 12})
      for (const int depth : {128, 256})
        for (const int rows_per : {96, 192, 384}) {
          t.micro_rows = micro_rows;
          t.depth = depth;
          t.rows_per = rows_per;
          add(t);
        }
    return out;
  }
  struct Shape {
    int rows, cols, item_rows, item_cols, depth;
  };
  for (const Shape& s :
       {Shape{16, 16, 2, 2, 16}, Shape{32, 32, 4, 4, 16}, Shape{32, 32, 2, 2, 16}, Shape{64, 32, 4, 4, 16},
        Shape{64, 64, 4, 4, 16}, Shape{64, 64, 8, 4, 16}, Shape{128, 64, 8, 4, 16}, Shape{128, 128, 8, 8, 16},
        Shape{64, 64, 4, 4, 32}, Shape{128, 64, 8, 4, 8}}) {
    t.tile_rows = s.rows;
    t.tile_cols = s.cols;
    t.item_rows = s.item_rows;
    t.item_cols = s.item_cols;
    t.wide_depth = s.depth;
    add(t);
  }
  return out;
}

std::string words(const ProductTiles& t) {
  if (t.style == LaunchStyle::narrow)
    return fmt::format("{} rows x 2 vectors, {} deep, {} rows per panel", t.micro_rows, t.depth, t.rows_per);
  return fmt::format("{} x {} per group, {} x {} per item, {} deep", t.tile_rows, t.tile_cols, t.item_rows, t.item_cols,
                     t.wide_depth);
}

}  // namespace

TuneReport tune_opencl_device(int index, int rounds, double seconds) {
  OpenClDeviceOptions options = opencl_device_options(index);
  OpenClDevice device(options, opencl_backend().target({.index = index}));
  TuneReport report;
  report.device = device_text(device.id(), CL_DEVICE_NAME);
  const ProductTiles before = device.tiles();

  const std::vector<Product> work = products();
  constexpr int64_t kRoom = int64_t{8} << 20;  // each operand fits
  const KernelArgs args{{{0, 0, kRoom}}, {{0, kRoom, kRoom}, {0, 2 * kRoom, kRoom}}, {0, 3 * kRoom, kRoom}};
  int64_t workspace = 0;
  for (const Product& p : work) workspace = std::max(workspace, product_workspace(p));
  LATHE_CHECK(workspace <= kRoom, "{} bytes", workspace);
  const int64_t segments[] = {4 * kRoom};
  device.allocate(segments);

  std::vector<ProductTiles> all = candidates(device);
  std::vector<std::vector<std::unique_ptr<Kernel>>> kernels;
  Stream& stream = device.stream(Lane::compute);
  const Stopwatch since;
  for (size_t c = 0; c < all.size(); ++c) {
    if (c >= 2 && since.seconds() > seconds) {
      report.left_out = static_cast<int>(all.size() - c);
      all.resize(c);
      break;
    }
    kernels.emplace_back();
    for (const Product& p : work) kernels.back().push_back(device.bind(product_calls(p, all[c]), args));
    for (const auto& kernel : kernels.back()) kernel->run(stream);  // compiles, warms up
    stream.synchronize();
  }
  // Candidates take turns, so that a disturbance does not fall on one of them.
  std::vector<std::vector<double>> best(all.size(), std::vector<double>(work.size(), HUGE_VAL));
  for (int round = 0; round < rounds; ++round)
    for (size_t c = 0; c < all.size(); ++c)
      for (size_t w = 0; w < work.size(); ++w) {
        const Stopwatch start;
        kernels[c][w]->run(stream);
        stream.synchronize();
        best[c][w] = std::min(best[c][w], start.seconds());
      }
  size_t winner = 0;
  for (size_t c = 0; c < all.size(); ++c) {
    double sum = 0;
    for (size_t w = 0; w < work.size(); ++w) sum += std::log(flops(work[w]) / best[c][w] / 1e9);
    report.rows.push_back({words(all[c]), std::exp(sum / static_cast<double>(work.size())), all[c] == before});
    if (report.rows[c].gflops > report.rows[winner].gflops) winner = c;
  }
  std::ranges::stable_sort(report.rows, [](const TuneRow& a, const TuneRow& b) { return a.gflops > b.gflops; });
  const TileStore store = opencl_tile_store(index, before.style);
  if (store.save(all[winner])) report.stored = store.path();
  return report;
}

}  // namespace lathe
