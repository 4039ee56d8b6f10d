// Kernels against the reference: large shapes and fused products in the narrow (CPU) and the wide (GPU) form, and in
// the wide form every sample of every op that the table accepts. The narrow form's samples are run/conformance_test's.
#include "backend/opencl/opencl_kernels.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "backend/kernels/attention_calls.h"
#include "backend/opencl/batch_test.h"
#include "backend/opencl/opencl_backend.h"
#include "base/philox.h"
#include "ops/attention.h"
#include "ops/broadcast.h"
#include "ops/conv2d.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/matmul.h"
#include "ops/random_uniform.h"
#include "ops/reduce.h"
#include "ops/registry.h"
#include "ops/sample.h"
#include "ops/transpose.h"

namespace lathe {
namespace {

// Relative to the largest value of a tensor. OpenCL allows some units in the last place per function; sums of the
// samples stay within some tens of roundings.
constexpr double kTolerance = 1e-5;

Sample as_f64(Sample s) {
  for (SampleInput& in : s.inputs)
    if (in.type.dtype == DType::f32) in.type.dtype = DType::f64;
  return s;
}

template <class F>
void add_graph(DeviceBatch& batch, const char* label, const std::vector<TensorType>& types, F&& build,
               double range = 1) {
  Builder b("large");
  Values x;
  Sample s{label, {}, nullptr};
  for (size_t i = 0; i < types.size(); ++i) {
    x.push_back(b.input(types[i], InputKind::batch, fmt::format("x{}", i)));
    s.inputs.push_back({types[i], -range, range});
  }
  b.output(build(x), OutputKind::result, "y");
  EXPECT_EQ(batch.add(label, b.finish(), sample_inputs(s, 5)), "");
}

// Shapes that the samples of ops leave out: split reductions, long columns, several matmul panels and row blocks.
void add_large(DeviceBatch& batch) {
  const auto add = [&](const char* label, const std::vector<TensorType>& types, auto&& build, double range = 1) {
    add_graph(batch, label, types, build, range);
  };
  const auto f32 = [](Shape s) { return TensorType{DType::f32, s}; };
  add("sum of 600,000", {f32({600, 1000})}, [](const Values& x) { return sum_all(x[0]); });
  add("sum of 5,000 rows", {f32({5000, 70})}, [](const Values& x) { return reduce_sum(x[0], {0}); });
  add("sum of outer and inner", {f32({300, 3, 500})}, [](const Values& x) { return reduce_sum(x[0], {0, 2}); });
  add("maximum of 300,000", {f32({300000})}, [](const Values& x) { return reduce_max(x[0], {0}); });
  add(
      "integers that would wrap", {{DType::i32, {30, 9}}}, [](const Values& x) { return reduce_sum(x[0], {1}); }, 2e9);
  add("transpose", {f32({130, 3, 257})}, [](const Values& x) { return transpose(x[0], {2, 1, 0}); });
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      add("matmul", {f32(ta ? Shape{600, 211} : Shape{211, 600}), f32(tb ? Shape{100, 600} : Shape{600, 100})},
          [&](const Values& x) { return matmul(x[0], x[1], ta, tb); });
  add("batched matmul", {f32({5, 70, 33}), f32({5, 33, 65})}, [](const Values& x) { return matmul(x[0], x[1]); });
  add("matmul with a split k", {f32({20, 5000}), f32({5000, 40})}, [](const Values& x) { return matmul(x[0], x[1]); });
}

void add_convolutions(DeviceBatch& batch) {
  const auto f32 = [](Shape s) { return TensorType{DType::f32, s}; };
  const auto add = [&](const char* label, const std::vector<TensorType>& types, auto&& build) {
    add_graph(batch, label, types, build);
  };
  Conv2dParams same;
  same.pad_top = same.pad_bottom = same.pad_left = same.pad_right = 1;
  Conv2dParams strided = same;
  strided.stride_h = strided.stride_w = 2;
  strided.groups = 2;
  for (const auto& row : {std::pair("conv", same), std::pair("strided conv in groups", strided)}) {
    const char* const label = row.first;
    const Conv2dParams& c = row.second;  // clang 14 captures no structured bindings
    const int64_t out = c.stride_h == 1 ? 14 : 7;
    add(label, {f32({3, 14, 14, 48}), f32({70, 3, 3, 48 / c.groups})},
        [&](const Values& x) { return conv2d(x[0], x[1], c); });
    add(label, {f32({3, out, out, 70}), f32({70, 3, 3, 48 / c.groups})},
        [&](const Values& x) { return conv2d_dx(x[0], x[1], c, 14, 14); });
    add(label, {f32({12, 14, 14, 48}), f32({12, out, out, 70})},
        [&](const Values& x) { return conv2d_dw(x[0], x[1], c, 3, 3); });
  }
}

// Fused nodes with a product: epilogues that fit into the product's kernel, and one that needs a loop behind it.
void add_chains(DeviceBatch& batch) {
  const auto add = [&](const char* label, const char* kind, const std::vector<TensorType>& types, auto&& build) {
    Builder body("body"), b("chain");
    Values inner, outer;
    Sample s{label, {}, nullptr};
    for (size_t i = 0; i < types.size(); ++i) {
      inner.push_back(body.input(types[i], InputKind::batch, fmt::format("x{}", i)));
      outer.push_back(b.input(types[i], InputKind::batch, fmt::format("x{}", i)));
      s.inputs.push_back({types[i], -1, 1});
    }
    for (const Value& y : build(inner)) body.output(y, OutputKind::result, fmt::format("y{}", y.id()));
    const FusedParams params{kind, std::make_shared<const Graph>(body.finish())};
    for (const Value& y : b.add(fused_op, outer, make_params(params)))
      b.output(y, OutputKind::result, fmt::format("y{}", y.id()));
    EXPECT_EQ(batch.add(label, b.finish(), sample_inputs(s, 5)), "");
  };
  const auto f32 = [](Shape s) { return TensorType{DType::f32, s}; };
  add("matmul, bias, gelu", "matmul", {f32({50, 300}), f32({300, 70}), f32({70})},
      [](const Values& x) -> Values { return {gelu(matmul(x[0], x[1]) + x[2])}; });
  add("batched matmul, residual, two outputs", "matmul",
      {f32({3, 20, 30}), f32({3, 30, 40}), f32({3, 20, 40}), f32({40})}, [](const Values& x) -> Values {
        const Value y = matmul(x[0], x[1]) + x[2];
        return {y, relu(y * x[3])};
      });
  add("batched matmul, a row per batch", "matmul", {f32({3, 20, 30}), f32({3, 30, 40}), f32({3, 1, 40})},
      [](const Values& x) -> Values { return {tanh(matmul(x[0], x[1]) * x[2])}; });
  add("matmul, comparison", "matmul", {f32({50, 30}), f32({30, 70}), f32({50, 1})}, [](const Values& x) -> Values {
    const Value y = matmul(x[0], x[1]);
    return {y, less(y, broadcast_to(x[2], y.shape()))};
  });
  add("matmul with a split k, bias", "matmul", {f32({20, 5000}), f32({5000, 40}), f32({40})},
      [](const Values& x) -> Values { return {relu(matmul(x[0], x[1]) + x[2])}; });
  Conv2dParams grouped;
  grouped.pad_top = grouped.pad_left = 1;
  grouped.groups = 2;
  add("conv, bias, residual, relu", "conv2d", {f32({2, 9, 8, 6}), f32({80, 2, 2, 3}), f32({80}), f32({2, 9, 8, 80})},
      [&](const Values& x) -> Values { return {relu(conv2d(x[0], x[1], grouped) + x[2] + x[3])}; });
}

void add_samples(DeviceBatch& batch, const OpenClDevice& device, std::map<std::string, int>& declined) {
  for (const OpDef* op : registry().all()) {
    if (opencl_kernels().candidates(op->name()).empty()) continue;
    // The two forms differ in their loops, not in the instructions: some rows are enough.
    const bool row = find_elementwise(op->name()) != nullptr;
    if (row && op->info.inputs != 3 && op->name() != "gelu" && op->name() != "sub") continue;
    for (const Sample& s : op->samples()) {
      const std::string reason =
          batch.add(fmt::format("{} {}", op->name(), s.label), sample_graph(*op, s), sample_inputs(s, 3));
      if (!reason.empty()) ++declined[reason];
    }
  }
  const auto& dtypes = device.target().dtypes;
  if (std::ranges::find(dtypes, DType::f64) == dtypes.end()) return;
  for (const char* name : {"mul", "exp", "max", "reduce_sum", "matmul"}) {
    const OpDef* op = registry().find(name);
    for (const Sample& s : op->samples()) {
      const Sample t = as_f64(s);
      EXPECT_EQ(batch.add(fmt::format("{} {} in f64", name, s.label), sample_graph(*op, t), sample_inputs(t, 3)), "");
    }
  }
}

// The wide form runs as on a small device: groups of 256 work-items, 32 KB of local memory, allocations of 512 MB.
class Clamp {
 public:
  explicit Clamp(bool on) {
    if (on) setenv("LATHE_OPENCL_LIMITS", "256,32768,536870912", 1);
  }
  ~Clamp() { unsetenv("LATHE_OPENCL_LIMITS"); }
};

void agrees_with_reference(bool wide) {
  std::string reason;
  OpenClDeviceOptions options;
  options.style = wide ? LaunchStyle::wide : LaunchStyle::narrow;
  const Clamp clamp(wide);
  const auto device = open_test_device(options, &reason);
  if (!device) GTEST_SKIP() << reason;
  DeviceBatch batch(*device);
  std::map<std::string, int> declined;
  if (wide) add_samples(batch, *device, declined);
  add_large(batch);
  add_convolutions(batch);
  add_chains(batch);
  EXPECT_GT(batch.size(), wide ? 150u : 15u);
  for (const auto& [why, count] : declined) ADD_FAILURE() << count << " samples are declined: " << why;
  batch.run(kTolerance);
  EXPECT_EQ(device->library().programs(), 1);
}

TEST(OpenClKernels, NarrowAgreesWithReference) { agrees_with_reference(false); }
TEST(OpenClKernels, WideAgreesWithReference) { agrees_with_reference(true); }

// A CPU without 64-byte vectors, and tiles that tune-device may choose.
TEST(OpenClKernels, ProductsWithOtherTiles) {
  std::string reason;
  OpenClDeviceOptions options;
  options.tiles = ProductTiles{.vector_bytes = 32, .micro_rows = 6, .depth = 96, .rows_per = 50};
  const auto device = open_test_device(options, &reason);
  if (!device) GTEST_SKIP() << reason;
  DeviceBatch batch(*device);
  add_chains(batch);
  add_convolutions(batch);
  batch.run(kTolerance);
}

TEST(OpenClKernels, AttentionAndLoopsWithOtherTiles) {
  std::string reason;
  for (const LaunchStyle style : {LaunchStyle::narrow, LaunchStyle::wide}) {
    OpenClDeviceOptions options;
    options.tiles = ProductTiles{.style = style, .attention_rows = 64, .loop_items = 64};
    const auto device = open_test_device(options, &reason);
    if (!device) GTEST_SKIP() << reason;
    DeviceBatch batch(*device);
    for (const OpDef* op : {&attention_op, &attention_grad_op})
      for (const Sample& sample : op->samples()) {
        if (sample.label != "long") continue;
        EXPECT_EQ(batch.add(sample.label, sample_graph(*op, sample), sample_inputs(sample, 3)), "");
      }
    EXPECT_EQ(batch.size(), 2u);
    add_graph(batch, "rows", {{DType::f32, {3, 300}}}, [](const Values& x) { return reduce_sum(x[0], {1}); });
    add_graph(batch, "columns", {{DType::f32, {300, 7}}}, [](const Values& x) { return reduce_max(x[0], {0}); });
    batch.run(kTolerance);
  }
}

// Rows of attention: what the tiles say, but no more than a sequence fills and local memory takes.
TEST(AttentionCalls, RowsFitTheSequenceAndTheMemory) {
  const auto first_call = [](int64_t length, int64_t width, const ProductTiles& tiles) {
    Builder b("attention");
    const TensorType t{DType::f32, {3, 2, length, width}};
    const Value q = b.input(t, InputKind::batch, "q");
    b.output(attention(q, q, q, true), OutputKind::result, "y");
    const Graph g = b.finish();
    return attention_calls(g.nodes[0], g.types_of(g.nodes[0].inputs), g.types_of(g.nodes[0].outputs), tiles)[0];
  };
  const auto expect_rows = [&](int64_t length, int64_t width, const ProductTiles& tiles, int rows) {
    const KernelCall call = first_call(length, width, tiles);
    EXPECT_EQ(call.groups[0], (length + rows - 1) / rows) << length << " " << width;
    EXPECT_EQ(call.groups[1], 6);
    EXPECT_EQ(call.group_size, 4 * rows) << length << " " << width;
  };
  ProductTiles tiles{.style = LaunchStyle::wide, .attention_rows = 64};
  tiles.local_bytes = 1 << 20;
  expect_rows(200, 64, tiles, 64);
  expect_rows(33, 64, tiles, 64);
  expect_rows(32, 64, tiles, 32);
  expect_rows(3, 64, tiles, 16);
  tiles.local_bytes = 32768;
  expect_rows(200, 64, tiles, 16);
  expect_rows(200, 32, tiles, 32);
  tiles.attention_rows = 16;
  expect_rows(200, 32, tiles, 16);
}

// What tune-device has stored is what the kernels of a product are made of.
TEST(OpenClKernels, StoredTilesAreTaken) {
  std::string reason;
  if (opencl_devices(&reason).empty()) GTEST_SKIP() << reason;
  const std::string folder =
      (std::filesystem::temp_directory_path() / fmt::format("lathe-tiles-test-{}", getpid())).string();
  const char* before = std::getenv("LATHE_CACHE_DIR");
  const std::string own = before ? before : "";
  setenv("LATHE_CACHE_DIR", folder.c_str(), 1);
  setenv("LATHE_OPENCL_TRACE", "1", 1);
  const auto product_kernel = [] {
    const auto device = opencl_backend().open({});
    auto& opencl = static_cast<OpenClDevice&>(*device);
    DeviceBatch batch(opencl);
    add_graph(batch, "matmul", {{DType::f32, {70, 90}}, {DType::f32, {90, 80}}},
              [](const Values& x) { return matmul(x[0], x[1]); });
    batch.run(kTolerance);
    std::string name;
    for (const OpenClSpan& s : opencl.spans())
      if (s.what.starts_with("product_")) name = s.what;
    return std::pair(name, opencl.tiles());
  };
  const auto [usual_name, usual] = product_kernel();
  ProductTiles tiles = usual;
  tiles.micro_rows = usual.micro_rows == 4 ? 6 : 4;
  tiles.depth = 64;
  tiles.tile_rows = tiles.tile_cols = usual.tile_rows == 32 ? 16 : 32;
  tiles.item_rows = tiles.item_cols = 2;
  tiles.wide_depth = 16;
  ASSERT_TRUE(opencl_tile_store(0, usual.style).save(tiles));
  const auto [name, taken] = product_kernel();
  EXPECT_EQ(taken, tiles);
  EXPECT_NE(name, usual_name);
  const std::string expected =
      usual.style == LaunchStyle::narrow ? fmt::format("_{}x", tiles.micro_rows) : fmt::format("_{}x", tiles.tile_rows);
  EXPECT_NE(name.find(expected), std::string::npos) << name;
  unsetenv("LATHE_OPENCL_TRACE");
  own.empty() ? unsetenv("LATHE_CACHE_DIR") : setenv("LATHE_CACHE_DIR", own.c_str(), 1);
  std::filesystem::remove_all(folder);
}

TEST(OpenClKernels, SpecialValues) {
  std::string reason;
  const auto device = open_test_device({}, &reason);
  if (!device) GTEST_SKIP() << reason;
  DeviceBatch batch(*device);
  const double inf = HUGE_VAL, nan = std::nan("");
  const HostTensor odd{{DType::f32, {8}}, {inf, -inf, nan, 0, -0.0, 3e9, -3e9, 1e38}};
  const HostTensor other{{DType::f32, {8}}, {1, nan, 2, 0, 1, -1, nan, 1e38}};
  const auto add = [&](const char* op, std::vector<HostTensor> in, ParamsPtr params) {
    Sample s{op, {}, std::move(params)};
    for (const HostTensor& t : in) s.inputs.push_back({t.type});
    EXPECT_EQ(batch.add(op, sample_graph(*registry().find(op), s), std::move(in)), "");
  };
  add("max", {odd, other}, make_params(NoParams{}));
  add("min", {odd, other}, make_params(NoParams{}));
  add("is_finite", {odd}, make_params(NoParams{}));
  add("reduce_max", {odd}, make_params(ReduceParams{{0}, false}));
  for (const char* to : {"i32", "i64", "u8", "bool"})
    add("cast", {odd}, registry().find("cast")->from_attrs({{"dtype", *parse_dtype(to)}}));
  add("add", {{{DType::u8, {3}}, {200, 3, 255}}, {{DType::u8, {3}}, {100, 4, 0}}}, make_params(NoParams{}));
  add("sub", {{{DType::u8, {3}}, {1, 3, 255}}, {{DType::u8, {3}}, {100, 4, 0}}}, make_params(NoParams{}));
  add("reduce_sum", {{{DType::u8, {4}}, {200, 3, 255, 9}}}, make_params(ReduceParams{{0}, false}));
  batch.run(kTolerance);
}

TEST(OpenClKernels, RandomBitsAreThoseOfTheHost) {
  std::string reason;
  const auto device = open_test_device({}, &reason);
  if (!device) GTEST_SKIP() << reason;
  DeviceBatch batch(*device);
  // A seed and a step beyond 32 bits, which f64 holds exactly.
  Sample s{"bits", {{{DType::i64, {2}}}, {{DType::i64, {3}}}}, make_params(RandomUniformParams{7, {3, 21}})};
  const HostTensor key{{DType::i64, {2}}, {1234567890123, 9}}, index{{DType::i64, {3}}, {5, 0, 4294967295.0}};
  ASSERT_EQ(batch.add("random", sample_graph(random_uniform_op, s), {key, index}), "");
  batch.run(0);
}

TEST(OpenClKernels, DeclinesTypesThatTheDeviceLacks) {
  Target target;  // without f64
  const Node n{registry().find("exp"), make_params(NoParams{}), {}, {}, ""};
  const Site site{n, {{DType::f64, {4}}}, {{DType::f64, {4}}}, target};
  EXPECT_EQ(opencl_kernels().candidates("exp")[0].candidate.accepts(site), "the device does not compute in f64");
}

}  // namespace
}  // namespace lathe
