#include "backend/opencl/tune_device.h"

#include <algorithm>
#include <cmath>

#include "backend/kernels/node_calls.h"
#include "backend/opencl/opencl_backend.h"
#include "backend/opencl/opencl_device.h"
#include "base/stopwatch.h"
#include "ir/builder.h"
#include "ops/attention.h"
#include "ops/conv2d.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"

namespace lathe {
namespace {

// A graph of one node, and how much it does: operations or bytes.
struct TuneWork {
  Graph graph;
  double amount = 0;
};

template <class Build>
TuneWork work_of(const std::vector<Shape>& shapes, bool in_bytes, Build&& build) {
  Builder b("tune");
  Values x;
  for (size_t i = 0; i < shapes.size(); ++i)
    x.push_back(b.input({DType::f32, shapes[i]}, InputKind::batch, fmt::format("x{}", i)));
  b.output(build(x), OutputKind::result, "y");
  TuneWork w{b.finish()};
  LATHE_CHECK(w.graph.nodes.size() == 1, "{} nodes", w.graph.nodes.size());
  const Node& n = w.graph.nodes[0];
  const Cost cost = n.op->cost(w.graph.types_of(n.inputs), w.graph.types_of(n.outputs), n.params.get());
  w.amount = in_bytes ? cost.bytes_read + cost.bytes_written : cost.flops;
  return w;
}

// Products of the kinds that training is made of: forward and both gradients of a linear layer and of a convolution.
std::vector<TuneWork> product_work() {
  Conv2dParams p;
  p.pad_top = p.pad_bottom = p.pad_left = p.pad_right = 1;
  const Shape x{16, 14, 14, 32}, w{64, 3, 3, 32}, y{16, 14, 14, 64};
  std::vector<TuneWork> out;
  out.push_back(work_of({{512, 384}, {384, 512}}, false, [](const Values& v) { return matmul(v[0], v[1]); }));
  out.push_back(
      work_of({{512, 384}, {512, 384}}, false, [](const Values& v) { return matmul(v[0], v[1], false, true); }));
  out.push_back(
      work_of({{1024, 256}, {1024, 384}}, false, [](const Values& v) { return matmul(v[0], v[1], true, false); }));
  out.push_back(work_of({x, w}, false, [&](const Values& v) { return conv2d(v[0], v[1], p); }));
  out.push_back(work_of({y, w}, false, [&](const Values& v) { return conv2d_dx(v[0], v[1], p, 14, 14); }));
  out.push_back(work_of({x, y}, false, [&](const Values& v) { return conv2d_dw(v[0], v[1], p, 3, 3); }));
  return out;
}

// Both directions, for heads of 32 and of 64.
std::vector<TuneWork> attention_work() {
  std::vector<TuneWork> out;
  for (const Shape& q : {Shape{16, 4, 128, 32}, Shape{2, 4, 512, 64}}) {
    const AttentionParams p{true, 0.125};
    const Shape lse{q[0], q[1], q[2]};
    out.push_back(work_of({q, q, q}, false, [](const Values& v) { return attention(v[0], v[1], v[2], true); }));
    out.push_back(work_of({q, q, q, q, q, lse}, false, [&](const Values& v) {
      return v[0].builder().add(attention_grad_op, v, std::make_shared<const AttentionParams>(p))[0];
    }));
  }
  return out;
}

// Rows, columns, a whole tensor, and no reduction at all.
std::vector<TuneWork> loop_work() {
  const Shape x{2048, 768};
  std::vector<TuneWork> out;
  out.push_back(work_of({x}, true, [](const Values& v) { return reduce_sum(v[0], {1}); }));
  out.push_back(work_of({x}, true, [](const Values& v) { return reduce_sum(v[0], {0}); }));
  out.push_back(work_of({x}, true, [](const Values& v) { return reduce_max(v[0], {0, 1}); }));
  out.push_back(work_of({x, x}, true, [](const Values& v) { return v[0] + v[1]; }));
  return out;
}

void add_candidate(std::vector<ProductTiles>& out, const OpenClDevice& device, const ProductTiles& t) {
  if (check_tiles(t, device.limits().group, device.limits().local_bytes).empty() &&
      std::ranges::find(out, t) == out.end())
    out.push_back(t);
}

std::vector<ProductTiles> product_candidates(const OpenClDevice& device, ProductTiles t) {
  std::vector<ProductTiles> out{t};
  const auto add = [&](const ProductTiles& other) { add_candidate(out, device, other); };
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

std::string product_words(const ProductTiles& t) {
  if (t.style == LaunchStyle::narrow)
    return fmt::format("{} rows x 2 vectors, {} deep, {} rows per panel", t.micro_rows, t.depth, t.rows_per);
  return fmt::format("{} x {} per group, {} x {} per item, {} deep", t.tile_rows, t.tile_cols, t.item_rows, t.item_cols,
                     t.wide_depth);
}

// The tiles with other values of one size.
std::vector<ProductTiles> candidates_of(int ProductTiles::*size, std::initializer_list<int> values,
                                        const OpenClDevice& device, ProductTiles t) {
  std::vector<ProductTiles> out{t};
  for (const int value : values) {
    t.*size = value;
    add_candidate(out, device, t);
  }
  return out;
}

class DeviceTuner {
 public:
  DeviceTuner(OpenClDevice& device, int rounds, double seconds) : device_(device), rounds_(rounds), seconds_(seconds) {
    std::vector<int64_t> segments;
    const auto room = [&] {
      segments.push_back(kRoom);
      return Buffer{static_cast<int32_t>(segments.size()) - 1, 0, kRoom};
    };
    for (int i = 0; i < 3; ++i) args_.out.push_back(room());
    for (int i = 0; i < 6; ++i) args_.in.push_back(room());
    args_.workspace = room();
    device.allocate(segments);
  }

  // Measures the candidates, of which the first is what runs take until now; returns the best, if it is clearly better.
  ProductTiles run(TunePart& part, std::vector<ProductTiles> all, const std::vector<TuneWork>& work,
                   std::string (*words)(const ProductTiles&)) {
    std::vector<std::vector<std::unique_ptr<Kernel>>> kernels;
    Stream& stream = device_.stream(Lane::compute);
    for (size_t c = 0; c < all.size(); ++c) {
      if (c >= 2 && since_.seconds() > seconds_) {
        part.left_out = static_cast<int>(all.size() - c);
        all.resize(c);
        break;
      }
      kernels.emplace_back();
      for (const TuneWork& w : work) kernels.back().push_back(device_.bind(node_calls(site(w), all[c]), args_));
      for (const auto& kernel : kernels.back()) kernel->run(stream);  // compiles, warms up
      stream.synchronize();
    }
    // Candidates take turns, so that a disturbance does not fall on one of them.
    std::vector<std::vector<double>> best(all.size(), std::vector<double>(work.size(), HUGE_VAL));
    for (int round = 0; round < rounds_; ++round)
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
      for (size_t w = 0; w < work.size(); ++w) sum += std::log(work[w].amount / best[c][w] / 1e9);
      part.rows.push_back({words(all[c]), std::exp(sum / static_cast<double>(work.size())), c == 0});
      // Other sizes change the last bits of results: not for a difference that is noise.
      if (part.rows[c].rate > part.rows[winner].rate * (winner == 0 ? kWorthAChange : 1)) winner = c;
    }
    part.rows[winner].taken = true;
    std::ranges::stable_sort(part.rows, [](const TuneRow& a, const TuneRow& b) { return a.rate > b.rate; });
    return all[winner];
  }

 private:
  static constexpr double kWorthAChange = 1.03;
  static constexpr int64_t kRoom = int64_t{8} << 20;  // each operand fits

  Site site(const TuneWork& w) const {
    const Node& n = w.graph.nodes[0];
    return {n, w.graph.types_of(n.inputs), w.graph.types_of(n.outputs), device_.target()};
  }

  OpenClDevice& device_;
  int rounds_;
  double seconds_;
  Stopwatch since_;
  KernelArgs args_;
};

}  // namespace

TuneReport tune_opencl_device(int index, int rounds, double seconds) {
  OpenClDeviceOptions options = opencl_device_options(index);
  OpenClDevice device(options, opencl_backend().target({.index = index}));
  TuneReport report{.device = device_text(device.id(), CL_DEVICE_NAME), .parts = {}, .stored = ""};
  DeviceTuner tuner(device, rounds, seconds);
  ProductTiles tiles = device.tiles();
  const LaunchStyle style = tiles.style;
  // Products come last: they have the most candidates, and time may be short.
  report.parts.push_back({.name = "attention", .unit = "GFLOP/s", .rows = {}});
  tiles = tuner.run(report.parts.back(), candidates_of(&ProductTiles::attention_rows, {16, 32, 64}, device, tiles),
                    attention_work(), [](const ProductTiles& t) { return fmt::format("{} rows", t.attention_rows); });
  if (style != LaunchStyle::narrow) {
    report.parts.push_back({.name = "loops", .unit = "GB/s", .rows = {}});
    tiles.loop_items = tiles.loop_items == 0 ? group_items(style) : tiles.loop_items;
    tiles = tuner.run(report.parts.back(), candidates_of(&ProductTiles::loop_items, {64, 128, 256, 512}, device, tiles),
                      loop_work(), [](const ProductTiles& t) { return fmt::format("{} work-items", t.loop_items); });
  }
  report.parts.push_back({.name = "products", .unit = "GFLOP/s", .rows = {}});
  tiles = tuner.run(report.parts.back(), product_candidates(device, tiles), product_work(), product_words);
  const TileStore store = opencl_tile_store(index, style);
  if (store.save(tiles)) report.stored = store.path();
  return report;
}

}  // namespace lathe
