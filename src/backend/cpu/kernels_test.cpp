// Kernels at sizes where work is split: many tasks, chunks and tiles, with remainders. Samples of the registry are too
// small for that.
#include <gtest/gtest.h>

#include "backend/cpu/isa.h"
#include "backend/cpu/site_test.h"
#include "ops/arg_max.h"
#include "ops/avg_pool.h"
#include "ops/batch_norm.h"
#include "ops/concat.h"
#include "ops/conv2d.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/gather.h"
#include "ops/layer_norm.h"
#include "ops/matmul.h"
#include "ops/max_pool.h"
#include "ops/pad.h"
#include "ops/random_uniform.h"
#include "ops/slice.h"
#include "ops/softmax.h"
#include "ops/transpose.h"

namespace lathe::cpu {
namespace {

// Relative to the largest value; sums over up to some ten thousand values.
constexpr double kTolerance = 1e-5;

struct Case {
  const OpDef* op;
  ParamsPtr params;
  std::vector<SampleInput> in;
};

SampleInput f32(Shape s, double lo = -1, double hi = 1) { return {{DType::f32, s}, lo, hi}; }
SampleInput typed(DType t, Shape s, double lo, double hi) { return {{t, s}, lo, hi}; }

std::vector<Case> cases() {
  const ParamsPtr none = make_params(NoParams{});
  const auto bn = make_params(BatchNormParams{1e-5});
  const PoolParams p2{.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2};
  const PoolParams p3{.kernel_h = 3,
                      .kernel_w = 3,
                      .stride_h = 2,
                      .stride_w = 2,
                      .pad_top = 1,
                      .pad_bottom = 1,
                      .pad_left = 1,
                      .pad_right = 1};
  PoolParams g3 = p3;
  g3.size_h = 19;
  g3.size_w = 23;
  std::vector<Case> out;
  for (const Shape& s : {Shape{6, 21, 20, 3}, Shape{2000, 64}, Shape{300, 700}, Shape{9000, 1}, Shape{40, 1100}}) {
    const Shape c{s.dim(-1)};
    // A mean far from zero: the difference of squares would lose it.
    out.push_back({&batch_norm_op, bn, {f32(s, 9, 11), f32(c), f32(c)}});
    out.push_back(
        {&batch_norm_grad_op, bn, {f32(s), f32(s, 1, 3), f32(c, 0.5, 1.5), f32(c, 1.9, 2.1), f32(c, 0.2, 0.5)}});
  }
  for (const Shape& s : {Shape{3000, 17}, Shape{130, 1000}, Shape{20, 3001}}) {
    const Shape c{s.dim(-1)}, rows{s[0]};
    out.push_back({&softmax_op, none, {f32(s, -20, 20)}});
    out.push_back({&log_softmax_op, none, {f32(s, -20, 20)}});
    out.push_back({&softmax_grad_op, none, {f32(s), f32(s, 0, 0.1)}});
    out.push_back({&log_softmax_grad_op, none, {f32(s), f32(s, -8, 0)}});
    out.push_back({&layer_norm_op, make_params(LayerNormParams{1e-5}), {f32(s, 4, 6), f32(c), f32(c)}});
    out.push_back({&layer_norm_grad_op, none, {f32(s), f32(s), f32(c), f32(rows, -0.1, 0.1), f32(rows, 1, 2)}});
    for (double smoothing : {0.0, 0.1}) {
      const auto p = make_params(CrossEntropyParams{smoothing});
      const SampleInput labels = typed(DType::i32, rows, 0, static_cast<double>(s[1] - 1));
      out.push_back({&cross_entropy_op, p, {f32(s, -9, 9), labels}});
      out.push_back({&cross_entropy_grad_op, p, {f32(rows), f32(s, -9, 9), labels}});
    }
  }
  for (const int64_t c : {1, 6, 70}) {
    out.push_back({&max_pool_op, make_params(p3), {f32({5, 19, 23, c})}});
    out.push_back({&max_pool_op, make_params(p2), {f32({5, 18, 22, c})}});
    out.push_back({&max_pool_grad_op, make_params(p3), {f32({5, 10, 12, c}), f32({5, 19, 23, c})}});
    out.push_back({&max_pool_pick_op, make_params(p3), {f32({5, 19, 23, c}), f32({5, 19, 23, c})}});
    out.push_back({&avg_pool_op, make_params(p3), {f32({5, 19, 23, c})}});
    out.push_back({&avg_pool_grad_op, make_params(g3), {f32({5, 10, 12, c})}});
    out.push_back({&avg_pool_op, make_params(p2), {typed(DType::f64, {3, 18, 22, c}, -1, 1)}});
    out.push_back({&max_pool_op, make_params(p2), {typed(DType::f64, {3, 18, 22, c}, -1, 1)}});
  }
  for (DType t : {DType::f16, DType::bf16}) {
    out.push_back({&matmul_op,
                   make_params(MatmulParams{true, false}),
                   {typed(t, {3, 100, 65}, -1, 1), typed(t, {3, 100, 130}, -1, 1)}});
    out.push_back({&conv2d_op,
                   make_params(Conv2dParams{.stride_h = 2, .pad_top = 1}),
                   {typed(t, {2, 9, 11, 5}, -1, 1), typed(t, {37, 3, 3, 5}, -1, 1)}});
    out.push_back({&softmax_op, none, {typed(t, {130, 1000}, -20, 20)}});
    out.push_back({&layer_norm_op,
                   make_params(LayerNormParams{1e-5}),
                   {typed(t, {300, 177}, 4, 6), typed(t, {177}, -1, 1), typed(t, {177}, -1, 1)}});
    out.push_back({&batch_norm_op, bn, {typed(t, {2000, 64}, 9, 11), typed(t, {64}, -1, 1), typed(t, {64}, -1, 1)}});
    out.push_back({&max_pool_op, make_params(p3), {typed(t, {5, 19, 23, 6}, -1, 1)}});
    out.push_back({&avg_pool_op, make_params(p3), {typed(t, {5, 19, 23, 6}, -1, 1)}});
    out.push_back({&scatter_add_op,
                   make_params(ScatterAddParams{50}),
                   {typed(DType::i32, {700}, 0, 49), typed(t, {700, 300}, -1, 1)}});
  }
  for (DType t : {DType::f32, DType::f64, DType::u8, DType::f16, DType::bf16}) {
    out.push_back({&transpose_op, make_params(TransposeParams{{1, 0}}), {typed(t, {301, 517}, 0, 99)}});
    out.push_back({&transpose_op, make_params(TransposeParams{{0, 3, 1, 2}}), {typed(t, {3, 17, 19, 33}, 0, 99)}});
    out.push_back({&transpose_op, make_params(TransposeParams{{0, 2, 1, 3}}), {typed(t, {3, 50, 8, 33}, 0, 99)}});
    out.push_back({&transpose_op, make_params(TransposeParams{{3, 1, 2, 0}}), {typed(t, {20, 7, 11, 37}, 0, 99)}});
    out.push_back(
        {&slice_op, make_params(SliceParams{{1, 3, 2}, {40, 33, 50}, {2, 1, 3}}), {typed(t, {90, 50, 200}, 0, 99)}});
    out.push_back(
        {&pad_op, make_params(PadParams{{1, 0, 3}, {2, 5, 0}, {0, 2, 1}, 7}), {typed(t, {40, 13, 50}, 0, 99)}});
    out.push_back(
        {&concat_op, make_params(ConcatParams{1}), {typed(t, {30, 700, 3}, 0, 99), typed(t, {30, 2, 3}, 0, 99)}});
    out.push_back({&concat_op, make_params(ConcatParams{0}), {typed(t, {50000}, 0, 99), typed(t, {70001}, 0, 99)}});
    out.push_back({&gather_op, none, {typed(t, {500, 65}, 0, 99), typed(DType::i64, {3000}, 0, 499)}});
    out.push_back({&arg_max_op, make_params(ArgMaxParams{1}), {typed(t, {300, 190, 3}, 0, 99)}});
  }
  out.push_back(
      {&scatter_add_op, make_params(ScatterAddParams{50}), {typed(DType::i32, {700}, 0, 49), f32({700, 300})}});
  out.push_back({&scatter_add_op,
                 make_params(ScatterAddParams{9}),
                 {typed(DType::i32, {700}, 0, 8), typed(DType::i32, {700}, -9, 9)}});
  const SampleInput key = typed(DType::i64, {2}, 0, 1e6), index = typed(DType::i64, {7}, 0, 1e9);
  out.push_back({&random_uniform_op, make_params(RandomUniformParams{3, {7, 5003}}), {key, index}});
  out.push_back({&dropout_op, make_params(DropoutParams{0.3, 3}), {f32({7, 50, 101}), key, index}});
  out.push_back({&matmul_op, make_params(MatmulParams{true, false}), {f32({3, 100, 65}), f32({3, 100, 130})}});
  out.push_back({&matmul_op,
                 make_params(MatmulParams{}),
                 {typed(DType::f64, {33, 50}, -1, 1), typed(DType::f64, {50, 21}, -1, 1)}});
  return out;
}

class LargeKernels : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { force_isa(""); }
};
INSTANTIATE_TEST_SUITE_P(Cpu, LargeKernels, testing::ValuesIn(available_isas()),
                         [](const auto& param) { return std::string(param.param); });

void check(const OpDef& op, const ParamsPtr& params, const std::vector<HostTensor>& in, std::string_view kernel = "") {
  const auto want = run_reference(op, params, in);
  const SiteResult one = run_site(op, params, in, 1);
  ASSERT_NE(one.kernel, "") << one.declined;
  EXPECT_EQ(one.kernel.find("wrote"), std::string::npos) << one.kernel;
  if (!kernel.empty()) {
    EXPECT_EQ(one.kernel, kernel);
  }
  for (size_t i = 0; i < want.size(); ++i) {
    if (is_16bit(want[i].type.dtype))
      EXPECT_EQ(check_narrow(one.out[i], want[i]), "") << "output " << i;
    else
      EXPECT_LE(tensor_error(one.out[i], want[i]), kTolerance) << "output " << i;
  }
  // How work is split does not depend on the instruction set: one of them sees both thread counts.
  for (int threads : active_isa() == available_isas()[0] ? std::vector{2, 8} : std::vector{2})
    EXPECT_EQ(run_site(op, params, in, threads).bytes, one.bytes) << threads << " threads";
}

TEST_P(LargeKernels, AgreeWithReference) {
  for (const Case& c : cases()) {
    std::string types;
    for (const SampleInput& in : c.in) types += " " + to_string(in.type);
    SCOPED_TRACE(fmt::format("{}{}", c.op->name(), types));
    check(*c.op, c.params, sample_values({"", c.in, c.params}, 5));
  }
}

// Fused products: what the epilogue takes, what is left to the loop, several outputs.
TEST_P(LargeKernels, FusedChains) {
  struct Tail {
    const char* label;
    Value (*build)(Value y, Value bias, Value other);
  };
  const Tail tails[] = {
      {"bias", [](Value y, Value bias, Value) { return y + bias; }},
      {"bias relu", [](Value y, Value bias, Value) { return relu(y + bias); }},
      {"bias residual relu", [](Value y, Value bias, Value other) { return relu(y + bias + other); }},
      {"residual bias", [](Value y, Value bias, Value other) { return y + other + bias; }},
      {"gelu", [](Value y, Value bias, Value) { return gelu(y + bias); }},
      {"gate", [](Value y, Value bias, Value other) { return sigmoid(y + bias) * other; }},
      {"scale", [](Value y, Value, Value) { return y * 0.25; }},
      {"twice", [](Value y, Value, Value) { return relu(y) + y; }},
      {"square", [](Value y, Value, Value) { return y * y; }},
  };
  for (const DType t : {DType::f32, DType::f16, DType::bf16})
    for (const Tail& tail : tails)
      for (const bool conv : {false, true})
        for (const bool both : {false, true}) {
          if (t != DType::f32 && conv == both) continue;  // half of them are enough
          SCOPED_TRACE(fmt::format("{} after {} of {}{}", tail.label, conv ? "conv2d" : "matmul", to_string(t),
                                   both ? ", product kept" : ""));
          Builder b("body");
          const Shape xs = conv ? Shape{2, 9, 11, 5} : Shape{70, 33}, ws = conv ? Shape{37, 3, 3, 5} : Shape{33, 50};
          const Shape ys = conv ? Shape{2, 9, 11, 37} : Shape{70, 50};
          const auto input = [&](const Shape& s, const char* name) { return b.input({t, s}, InputKind::batch, name); };
          const Value x = input(xs, "x"), w = input(ws, "w"), bias = input({ys.dim(-1)}, "bias"),
                      other = input(ys, "other");
          const Value y =
              conv ? conv2d(x, w, {.pad_top = 1, .pad_bottom = 1, .pad_left = 1, .pad_right = 1}) : matmul(x, w);
          const Value z = tail.build(y, bias, other);
          if (both) b.output(y, OutputKind::result, "y");
          b.output(z, OutputKind::result, "z");
          const auto params =
              make_params(FusedParams{conv ? "conv2d" : "matmul", std::make_shared<const Graph>(b.finish())});
          const auto in = [&](const Shape& s) { return typed(t, s, -1, 1); };
          check(fused_op, params, sample_values({"", {in(xs), in(ws), in({ys.dim(-1)}), in(ys)}, params}, 4),
                t != DType::f32 ? "cpu_widened_chain"
                : conv          ? "cpu_conv_chain"
                                : "cpu_gemm_chain");
        }
}

TEST(CpuKernelsNaN, PoolingAndArgMaxFollowTheReference) {
  const PoolParams p{.kernel_h = 3, .kernel_w = 2, .stride_h = 1, .stride_w = 2};
  for (const OpDef* op : {&max_pool_op, &max_pool_grad_op, &max_pool_pick_op}) {
    std::vector<SampleInput> in{f32({2, 8, 8, 19})};
    if (op == &max_pool_grad_op) in.insert(in.begin(), f32({2, 6, 4, 19}));
    if (op == &max_pool_pick_op) in.insert(in.begin(), f32({2, 8, 8, 19}));
    auto values = sample_values({"", in, nullptr}, 3);
    for (size_t i = 7; i < values.back().data.size(); i += 31) values.back().data[i] = NAN;
    for (size_t i = 3; i < values.back().data.size(); i += 11) values.back().data[i] = 0.5;  // equal values
    check(*op, make_params(p), values);
  }
  auto values = sample_values({"", {f32({50, 20})}, nullptr}, 3);
  for (size_t i = 7; i < values[0].data.size(); i += 31) values[0].data[i] = NAN;
  check(arg_max_op, make_params(ArgMaxParams{1}), values);
  check(arg_max_op, make_params(ArgMaxParams{0}), values);
}

TEST(CpuKernelsSafety, IndicesOutsideAreClamped) {
  std::vector<HostTensor> in = sample_values({"", {f32({5, 3}), typed(DType::i32, {4}, 0, 4)}, nullptr}, 1);
  in[1].data = {-7, 99, 2, 4};
  const SiteResult r = run_site(gather_op, make_params(NoParams{}), in, 1);
  EXPECT_EQ(r.out[0].data[0], in[0].data[0]);
  EXPECT_EQ(r.out[0].data[3], in[0].data[12]);
}

}  // namespace
}  // namespace lathe::cpu
