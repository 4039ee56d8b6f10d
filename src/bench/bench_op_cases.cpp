// What `lathe bench op` measures each op on. The shapes are those of the workloads (src/bench/bench_step.cpp) and of
// common networks (ResNet-50, GPT-2); ops that only move memory get tensors of 64 MiB.
#include "backend/cpu/gemm/gemm_shapes.h"
#include "bench/bench_op.h"
#include "ops/arg_max.h"
#include "ops/attention.h"
#include "ops/batch_norm.h"
#include "ops/broadcast.h"
#include "ops/cast.h"
#include "ops/concat.h"
#include "ops/conv2d.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/full.h"
#include "ops/gather.h"
#include "ops/layer_norm.h"
#include "ops/matmul.h"
#include "ops/pad.h"
#include "ops/pool.h"
#include "ops/random_uniform.h"
#include "ops/reduce.h"
#include "ops/slice.h"
#include "ops/transpose.h"

namespace lathe {
namespace {

const Shape kLarge{4096, 4096};

SampleInput f32(const Shape& s, double lo = -1, double hi = 1) { return {{DType::f32, s}, lo, hi}; }
SampleInput i32(const Shape& s, int64_t below) { return {{DType::i32, s}, 0, static_cast<double>(below - 1)}; }
SampleInput i64(const Shape& s) { return {{DType::i64, s}, 0, 1e6}; }
template <class P>
Sample make(std::string label, std::vector<SampleInput> in, P params) {
  return {std::move(label), std::move(in), make_params(std::move(params))};
}

using Cases = std::vector<Sample>;

Cases elementwise(const OpDef& op) {
  Sample s = op.samples()[0];
  s.label = "large";
  for (SampleInput& x : s.inputs) x.type.shape = kLarge;
  return {s};
}

Cases rows(int inputs, double lo, double hi) {
  Cases out;
  for (const auto& [label, shape] :
       {std::pair<const char*, Shape>{"gpt-mini scores", {8, 6, 256, 256}}, {"large", kLarge}})
    out.push_back(make(label, std::vector<SampleInput>(static_cast<size_t>(inputs), f32(shape, lo, hi)), NoParams{}));
  return out;
}

Cases matmul_cases() {
  Cases out;
  for (const cpu::NamedGemmShape& g : cpu::kGemmShapes) {
    Ints a = g.trans_a ? Ints{g.k, g.m} : Ints{g.m, g.k}, b = g.trans_b ? Ints{g.n, g.k} : Ints{g.k, g.n};
    if (g.batch > 1) {
      a.insert(a.begin(), g.batch);
      b.insert(b.begin(), g.batch);
    }
    out.push_back(make(std::string(g.name), {f32(Shape(a)), f32(Shape(b))}, MatmulParams{g.trans_a, g.trans_b}));
  }
  return out;
}

struct ConvCase {
  const char* label;
  Shape x, w;
  int64_t stride, pad;
};
const ConvCase kConvs[] = {
    {"cnn conv1", {128, 28, 28, 1}, {32, 3, 3, 1}, 1, 1},
    {"cnn conv2", {128, 14, 14, 32}, {64, 3, 3, 32}, 1, 1},
    {"resnet18-cifar 64", {64, 32, 32, 64}, {64, 3, 3, 64}, 1, 1},
    {"resnet18-cifar 128", {64, 16, 16, 128}, {128, 3, 3, 128}, 1, 1},
    {"resnet18-cifar 256", {64, 8, 8, 256}, {256, 3, 3, 256}, 1, 1},
    {"resnet18-cifar 512", {64, 4, 4, 512}, {512, 3, 3, 512}, 1, 1},
    {"resnet50 stem", {16, 224, 224, 3}, {64, 7, 7, 3}, 2, 3},
    {"resnet50 1x1", {16, 56, 56, 64}, {256, 1, 1, 64}, 1, 0},
    {"resnet50 3x3", {16, 56, 56, 64}, {64, 3, 3, 64}, 1, 1},
};

Cases conv(std::string_view op) {
  Cases out;
  for (const ConvCase& c : kConvs) {
    Conv2dParams p{.stride_h = c.stride,
                   .stride_w = c.stride,
                   .pad_top = c.pad,
                   .pad_bottom = c.pad,
                   .pad_left = c.pad,
                   .pad_right = c.pad};
    const Shape y = conv_geometry(c.x, c.w, p).y();
    if (op == "conv2d") {
      out.push_back(make(c.label, {f32(c.x), f32(c.w)}, p));
    } else if (op == "conv2d_dx") {
      p.size_h = c.x[1], p.size_w = c.x[2];
      out.push_back(make(c.label, {f32(y), f32(c.w)}, p));
    } else {
      p.size_h = c.w[1], p.size_w = c.w[2];
      out.push_back(make(c.label, {f32(c.x), f32(y)}, p));
    }
  }
  return out;
}

Cases pool(std::string_view op) {
  Cases out;
  for (const auto& [label, x, kernel, pad] :
       {std::tuple<const char*, Shape, int64_t, int64_t>{"cnn pool1", {128, 28, 28, 32}, 2, 0},
        {"cnn pool2", {128, 14, 14, 64}, 2, 0},
        {"resnet50 stem", {16, 112, 112, 64}, 3, 1}}) {
    PoolParams p{.kernel_h = kernel,
                 .kernel_w = kernel,
                 .stride_h = 2,
                 .stride_w = 2,
                 .pad_top = pad,
                 .pad_bottom = pad,
                 .pad_left = pad,
                 .pad_right = pad};
    const Shape y = pool_geometry("bench", x, p).y();
    if (op == "max_pool" || op == "avg_pool") {
      out.push_back(make(label, {f32(x)}, p));
    } else if (op == "avg_pool_grad") {
      p.size_h = x[1], p.size_w = x[2];
      out.push_back(make(label, {f32(y)}, p));
    } else {
      out.push_back(make(label, {f32(op == "max_pool_grad" ? y : x), f32(x)}, p));
    }
  }
  return out;
}

Cases norms(std::string_view op) {
  Cases out;
  const bool batch = op.starts_with("batch"), grad = op.ends_with("_grad");
  const std::vector<std::pair<const char*, Shape>> shapes =
      batch ? std::vector<std::pair<const char*, Shape>>{{"resnet50 stem", {16, 112, 112, 64}},
                                                         {"resnet50 2048", {16, 7, 7, 2048}}}
            : std::vector<std::pair<const char*, Shape>>{{"gpt-mini", {8, 256, 384}}, {"gpt2 tokens", {8192, 768}}};
  for (const auto& [label, x] : shapes) {
    const Shape c{x.dim(-1)};
    // The statistics that the derivative reads: per channel, or per row.
    const Ints leading(x.begin(), x.end() - 1);
    const Shape stats = batch ? c : Shape(leading);
    std::vector<SampleInput> in =
        grad ? std::vector<SampleInput>{f32(x), f32(x), f32(c, 0.5, 1.5), f32(stats), f32(stats, 0.5, 2)}
             : std::vector<SampleInput>{f32(x), f32(c, 0.5, 1.5), f32(c)};
    if (batch)
      out.push_back(make(label, std::move(in), BatchNormParams{}));
    else if (grad)
      out.push_back(make(label, std::move(in), NoParams{}));
    else
      out.push_back(make(label, std::move(in), LayerNormParams{}));
  }
  return out;
}

Cases cross_entropy_cases(bool grad) {
  Cases out;
  for (const auto& [label, n, classes] : {std::tuple<const char*, int64_t, int64_t>{"gpt-mini", 2048, 256},
                                          {"gpt2-124m", 256, 50257},
                                          {"imagenet", 4096, 1000}}) {
    std::vector<SampleInput> in{f32({n, classes}, -4, 4), i32({n}, classes)};
    if (grad) in.insert(in.begin(), f32({n}));
    out.push_back(make(label, std::move(in), CrossEntropyParams{}));
  }
  return out;
}

Cases attention_cases(bool grad) {
  Cases out;
  for (const auto& [label, q] : {std::pair<const char*, Shape>{"gpt-mini", {8, 6, 256, 64}},
                                 {"gpt2-124m", {4, 12, 64, 64}},
                                 {"gpt2 long", {1, 12, 1024, 64}}}) {
    std::vector<SampleInput> in(grad ? 5 : 3, f32(q));
    if (grad) in.push_back(f32({q[0], q[1], q[2]}, 2, 4));
    out.push_back(make(label, std::move(in), AttentionParams{true, 0.125}));
  }
  return out;
}

Cases reduce() {
  return {make("rows", {f32(kLarge)}, ReduceParams{{1}}), make("columns", {f32(kLarge)}, ReduceParams{{0}}),
          make("all", {f32(kLarge)}, ReduceParams{{0, 1}})};
}

struct Row {
  std::string_view op;
  Cases (*cases)();
};
const Row kRows[] = {
    {"arg_max",
     [] {
       return Cases{make("imagenet", {f32({16384, 1000})}, ArgMaxParams{1})};
     }},
    {"attention", [] { return attention_cases(false); }},
    {"attention_grad", [] { return attention_cases(true); }},
    {"avg_pool", [] { return pool("avg_pool"); }},
    {"avg_pool_grad", [] { return pool("avg_pool_grad"); }},
    {"batch_norm", [] { return norms("batch_norm"); }},
    {"batch_norm_grad", [] { return norms("batch_norm_grad"); }},
    {"broadcast",
     [] {
       return Cases{make("rows", {f32({4096})}, BroadcastParams{{4096, 4096}}),
                    make("columns", {f32({4096, 1})}, BroadcastParams{{4096, 4096}})};
     }},
    {"cast",
     [] {
       return Cases{make("u8 to f32", {{{DType::u8, kLarge}, 0, 255}}, CastParams{DType::f32})};
     }},
    {"concat",
     [] {
       return Cases{make("columns", {f32({4096, 2048}), f32({4096, 2048})}, ConcatParams{1})};
     }},
    {"conv2d", [] { return conv("conv2d"); }},
    {"conv2d_dw", [] { return conv("conv2d_dw"); }},
    {"conv2d_dx", [] { return conv("conv2d_dx"); }},
    {"cross_entropy", [] { return cross_entropy_cases(false); }},
    {"cross_entropy_grad", [] { return cross_entropy_cases(true); }},
    {"dropout",
     [] {
       return Cases{make("large", {f32(kLarge), i64({2}), i64({4096})}, DropoutParams{0.1, 1})};
     }},
    {"full",
     [] {
       return Cases{make("large", {}, FullParams{DType::f32, kLarge.to_ints(), 1.5})};
     }},
    {"gather",
     [] {
       return Cases{make("gpt2-124m", {f32({50257, 768}), i32({4, 64}, 50257)}, NoParams{}),
                    make("gpt2 tokens", {f32({50257, 768}), i32({16384}, 50257)}, NoParams{})};
     }},
    {"iota",
     [] {
       return Cases{make("large", {}, IotaParams{DType::i32, kLarge.to_ints(), 1})};
     }},
    {"layer_norm", [] { return norms("layer_norm"); }},
    {"layer_norm_grad", [] { return norms("layer_norm_grad"); }},
    {"log_softmax", [] { return rows(1, -4, 4); }},
    {"log_softmax_grad", [] { return rows(2, -3, 0); }},
    {"matmul", matmul_cases},
    {"max_pool", [] { return pool("max_pool"); }},
    {"max_pool_grad", [] { return pool("max_pool_grad"); }},
    {"max_pool_pick", [] { return pool("max_pool_pick"); }},
    {"pad",
     [] {
       return Cases{make("image", {f32({64, 56, 56, 64})}, PadParams{{0, 1, 1, 0}, {0, 1, 1, 0}, {0, 0, 0, 0}, 0})};
     }},
    {"random_uniform",
     [] {
       return Cases{make("large", {i64({2}), i64({4096})}, RandomUniformParams{1, kLarge.to_ints()})};
     }},
    {"reduce_max", reduce},
    {"reduce_sum", reduce},
    {"scatter_add",
     [] {
       return Cases{make("gpt2-124m", {i32({4, 64}, 50257), f32({4, 64, 768})}, ScatterAddParams{50257})};
     }},
    {"slice",
     [] {
       return Cases{make("columns", {f32(kLarge)}, SliceParams{{0, 1024}, {4096, 2048}, {1, 1}})};
     }},
    {"softmax", [] { return rows(1, -4, 4); }},
    {"softmax_grad", [] { return rows(2, -1, 1); }},
    {"transpose",
     [] {
       return Cases{make("matrix", {f32(kLarge)}, TransposeParams{{1, 0}}),
                    make("heads", {f32({32, 512, 16, 64})}, TransposeParams{{0, 2, 1, 3}})};
     }},
};

}  // namespace

std::vector<Sample> bench_cases(const OpDef& op) {
  if (op.has(kElementwise) && !op.samples().empty() && op.name() != "cast") return elementwise(op);
  for (const Row& row : kRows)
    if (row.op == op.name()) return row.cases();
  Cases out;
  for (Sample& s : op.samples()) {
    bool empty = false;
    Types in;
    for (const SampleInput& x : s.inputs) in.push_back(x.type);
    for (const TensorType& t : in) empty = empty || t.numel() == 0;
    for (const TensorType& t : op.infer(in, s.params.get())) empty = empty || t.numel() == 0;
    if (!empty) out.push_back(std::move(s));
  }
  return out;
}

}  // namespace lathe
