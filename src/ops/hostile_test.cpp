// Parameters and types from outside: whatever they are, a type rule gives types or a UserError, and what it accepts
// runs. Each op is tried with every single parameter and every single input of its samples replaced by something bad.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/print.h"
#include "ops/registry.h"
#include "ops/sample.h"

namespace lathe {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();
constexpr double kQuietNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kSmall = 20000;  // elements up to which an accepted graph is run

std::vector<Attr> bad_values(const Attr& good) {
  std::vector<Attr> out;
  if (std::holds_alternative<int64_t>(good)) {
    for (int64_t v : {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{2}, int64_t{7}, int64_t{1} << 31, int64_t{1} << 40,
                      kMax, kMax - 1, kMin})
      out.push_back(v);
  } else if (std::holds_alternative<double>(good)) {
    for (double v : {0.0, 1.0, -1.0, 2.0, kQuietNan, kInf, -kInf, 1e308, -1e-308}) out.push_back(v);
  } else if (std::holds_alternative<bool>(good)) {
    out = {true, false};
  } else if (std::holds_alternative<DType>(good)) {
    for (DType t : kAllDTypes) out.push_back(t);
  } else if (const Ints* list = std::get_if<Ints>(&good)) {
    out = {Ints{},        Ints{0},    Ints{-1},     Ints{kMax}, Ints{kMin}, Ints{0, 0}, Ints{1, 1}, Ints{0, kMax, kMax},
           Ints{2, 2, 2}, Ints(9, 1), Ints(1000, 1)};
    for (size_t i = 0; i < list->size(); ++i)
      for (int64_t v : {int64_t{0}, int64_t{-1}, int64_t{1}, (*list)[(i + 1) % list->size()], (*list)[i] + 1,
                        int64_t{1} << 40, kMax, kMin}) {
        Ints changed = *list;
        changed[i] = v;
        out.push_back(changed);
      }
    Ints shorter = *list, longer = *list;
    if (!shorter.empty()) shorter.pop_back();
    longer.push_back(1);
    out.push_back(shorter);
    out.push_back(longer);
  } else if (std::holds_alternative<GraphPtr>(good)) {
    out = {GraphPtr(), std::make_shared<const Graph>()};
  } else {
    out = {std::string(), std::string("x")};
  }
  // Another kind of value.
  out.push_back(std::string("text"));
  out.push_back(Ints{1, 2});
  out.push_back(1.5);
  return out;
}

std::vector<TensorType> bad_types(const TensorType& good) {
  std::vector<TensorType> out;
  for (DType t : kAllDTypes) out.push_back({t, good.shape});
  for (const Shape& s : {Shape{}, Shape{0}, Shape{1}, Shape{3}, Shape{1, 1}, Shape{0, 5}, Shape{2, 2, 2, 2},
                         Shape{0, kMax / 8}, Shape{1, 1, 1, 1, 1, 1, 1, 1}, Shape{kMax / 8}})
    out.push_back({good.dtype, s});
  for (int i = 0; i < good.shape.ndim(); ++i)
    for (int64_t d : {int64_t{0}, int64_t{1}, good.shape[i] + 1})
      out.push_back({good.dtype, good.shape.with_dim(i, d)});
  if (good.shape.ndim() < Shape::kMaxDims) {
    Ints more = good.shape.to_ints();
    more.push_back(1);
    out.push_back({good.dtype, Shape(more)});
  }
  return out;
}

struct Counts {
  int refused = 0, accepted = 0, run = 0;
};

// Builds and, where small, runs one node. Anything but success or UserError fails the test.
void attempt(const OpDef& op, const Types& in, const Attrs& attrs, Counts& counts) {
  const auto describe = [&] {
    std::string text(op.name());
    for (const TensorType& t : in) text += " " + to_string(t);
    return text + " " + to_string(attrs);
  };
  try {
    Sample s{"hostile", {}, op.from_attrs(attrs)};
    for (const TensorType& t : in) s.inputs.push_back({t, 0, 1});
    const Graph g = sample_graph(op, s);
    ++counts.accepted;
    g.cost(g.nodes[0]);
    int64_t largest = 0;
    for (const TensorType& t : g.types) largest = std::max(largest, t.numel());
    if (largest > kSmall) return;
    interpret(g, sample_inputs(s, 1), Precision::rounded);
    ++counts.run;
  } catch (const UserError&) {
    ++counts.refused;
  } catch (const std::exception& e) {
    ADD_FAILURE() << describe() << ": " << e.what();
  }
}

TEST(Hostile, EveryOpRefusesOrRuns) {
  Counts counts;
  for (const OpDef* op : registry().all()) {
    int tried = 0;
    for (const Sample& s : op->samples()) {
      int64_t size = 0;
      for (const SampleInput& in : s.inputs) size += in.type.numel();
      if (size > 2000 || ++tried > 6) continue;  // the odd ones come first; long ones only repeat them
      Types in;
      for (const SampleInput& i : s.inputs) in.push_back(i.type);
      const Attrs attrs = op->to_attrs(s.params.get());
      for (size_t k = 0; k < attrs.size(); ++k)
        for (const Attr& bad : bad_values(attrs[k].second)) {
          Attrs changed = attrs;
          changed[k].second = bad;
          attempt(*op, in, changed, counts);
        }
      for (size_t k = 0; k < in.size(); ++k)
        for (const TensorType& bad : bad_types(in[k])) {
          Types changed = in;
          changed[k] = bad;
          attempt(*op, changed, attrs, counts);
        }
      if (!in.empty())  // all inputs alike: shapes that agree with each other and are odd all the same
        for (const TensorType& bad : bad_types(in[0])) attempt(*op, Types(in.size(), bad), attrs, counts);
    }
  }
  EXPECT_GT(counts.refused, 3000);
  EXPECT_GT(counts.run, 1000);
}

// Things that must be refused, with the part of the message that says why.
TEST(Hostile, RefusalsNameTheReason) {
  struct Case {
    const char*
        node;  // over %x: f32[2, 6, 6, 4], %w: f32[4, 3, 3, 4], %m: f32[3, 4], %i: i32[3], %k: i64[2], %b: bool[3]
    const char* message;
  };
  const Case cases[] = {
      {"%y: f32[] = conv2d(%x, %w) {stride_h=0}", "stride 0"},
      {"%y: f32[] = conv2d(%x, %w) {dilation_w=0}", "dilation 0"},
      {"%y: f32[] = conv2d(%x, %w) {groups=0}", "0 groups"},
      {"%y: f32[] = conv2d(%x, %w) {groups=2}", "w takes 4 channels in 2 groups, x has 4"},
      {"%y: f32[] = conv2d(%x, %w) {pad_top=-1}", "padding -1"},
      {"%y: f32[] = conv2d(%x, %w) {dilation_h=9223372036854775807}", "overflows"},
      {"%y: f32[] = conv2d(%x, %m)", "expected 4 dimensions"},
      {"%y: f32[] = conv2d(%x, %w) {size_h=3}", "size_h and size_w belong"},
      {"%y: f32[] = conv2d_dx(%x, %w) {size_h=0, size_w=0}", "input 0"},
      {"%y: f32[] = conv2d_dx(%x, %w) {size_h=9, size_w=9}", "dy is"},
      {"%y: f32[] = max_pool(%x) {kernel_h=0}", "kernel 0"},
      {"%y: f32[] = max_pool(%x) {stride_w=0}", "stride 0"},
      {"%y: f32[] = max_pool(%x) {kernel_h=2, pad_top=2}", "must be less than the kernel"},
      {"%y: f32[] = avg_pool(%m) {}", "expected 4 dimensions"},
      {"%y: f32[] = reduce_sum(%m) {axes=[0, 0]}", "ascend without repeats"},
      {"%y: f32[] = reduce_sum(%m) {axes=[2]}", "out of range"},
      {"%y: f32[] = reduce_sum(%m) {axes=[-1]}", "out of range"},
      {"%y: f32[] = transpose(%m) {perm=[0, 0]}", "not a permutation"},
      {"%y: f32[] = transpose(%m) {perm=[1]}", "not a permutation"},
      {"%y: f32[] = broadcast(%m) {shape=[4, 4]}", "does not fit"},
      {"%y: f32[] = reshape(%m) {shape=[5]}", "has 12 elements"},
      {"%y: f32[] = slice(%m) {starts=[0, 0], sizes=[3, 4], steps=[1, 0]}", "step 0"},
      {"%y: f32[] = slice(%m) {starts=[1, 0], sizes=[3, 4], steps=[1, 1]}", "exceed 3"},
      {"%y: f32[] = slice(%m) {starts=[0], sizes=[3], steps=[1]}", "needs 2 starts"},
      {"%y: f32[] = pad(%m) {low=[-1, 0], high=[0, 0], interior=[0, 0]}", "none below 0"},
      {"%y: f32[] = pad(%m) {low=[9223372036854775807, 0], high=[1, 0], interior=[0, 0]}", "overflows"},
      {"%y: f32[] = concat(%m, %x) {axis=0}", "do not fit"},
      {"%y: f32[] = concat(%m) {axis=2}", "out of range"},
      {"%y: f32[] = gather(%m, %m)", "i32 or i64 indices"},
      {"%y: f32[] = scatter_add(%i, %m) {rows=0}", "0 rows"},
      {"%y: f32[] = scatter_add(%i, %m) {rows=-3}", "-3 rows"},
      {"%y: i32[] = arg_max(%m) {axis=-1}", "out of range"},
      {"%y: i32[] = arg_max(%b) {axis=0}", "bool is not a number"},
      {"%y: f32[] = matmul(%m, %m)", "do not fit"},
      {"%y: f32[] = matmul(%m, %i)", "two float tensors"},
      {"%y: f32[] = add(%m, %i)", "shapes"},
      {"%y: f32[] = exp(%i)", "cannot be i32"},
      {"%y: f32[] = softmax(%i)", "expected floats"},
      {"%y: f32[] = cross_entropy(%m, %i) {smoothing=1.5}", "outside of [0, 1]"},
      {"%y: f32[] = cross_entropy(%m, %i) {smoothing=nan}", "outside of [0, 1]"},
      {"%y: f32[] = cross_entropy(%m, %k)", "expected labels i32[3]"},
      {"%y: f32[] = layer_norm(%m, %m, %m)", "for the channels of x"},
      {"%y: f32[] = batch_norm(%m, %i, %i) {eps=-1.0}", "for the channels of x"},
      {"%y: f32[] = dropout(%m, %k, %k) {rate=1.0}", "outside of [0, 1)"},
      {"%y: f32[] = dropout(%m, %k, %k) {rate=0.5, stream=-1}", "outside of [0, 2^32)"},
      {"%y: f32[] = dropout(%m, %k, %k) {rate=0.5}", "index i64[3]"},
      {"%y: f32[] = random_uniform(%k, %k) {shape=[3, 2]}", "one i64 index per sample"},
      {"%y: f32[] = random_uniform(%m, %k) {shape=[2]}", "must be i64[2]"},
      {"%y: f32[] = attention(%x, %x, %w)", "expected q, k and v of one type"},
      {"%y: f32[] = grad(%m, %m)", "the loss must be one float"},
      {"%y: f32[] = fused(%m)", "no body"},
      {"%y: f32[] = full() {shape=[-2]}", "negative"},
      {"%y: f32[] = full() {shape=[9223372036854775807, 3]}", "overflows"},
      {"%y: i32[] = iota() {shape=[3], axis=1}", "out of range"},
      {"%y: f32[] = full() {sahpe=[2]}", "unknown parameter `sahpe`"},
      {"%y: f32[] = full() {shape=3}", "parameter `shape`"},
  };
  for (const Case& c : cases) {
    const std::string text = fmt::format(
        "graph g {{\n  input %x: f32[2, 6, 6, 4] batch \"x\"\n  input %w: f32[4, 3, 3, 4] batch \"w\"\n"
        "  input %m: f32[3, 4] batch \"m\"\n  input %i: i32[3] batch \"i\"\n  input %k: i64[2] batch \"k\"\n"
        "  input %b: bool[3] batch \"b\"\n  {}\n}}",
        c.node);
    try {
      parse_graph(text, registry());
      ADD_FAILURE() << c.node << ": accepted";
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find(c.message), std::string::npos) << c.node << ": " << e.what();
    } catch (const std::exception& e) {
      ADD_FAILURE() << c.node << ": not a UserError: " << e.what();
    }
  }
}

TEST(Hostile, IndicesOutsideOfTheTableAreRefusedByTheReference) {
  Builder b("g");
  const Value table = b.input({DType::f32, {3, 2}}, InputKind::batch, "table"),
              ids = b.input({DType::i32, {2}}, InputKind::batch, "ids");
  b.output(b.add(*registry().find("gather"), std::vector<Value>{table, ids}, make_params(NoParams{}))[0],
           OutputKind::result, "y");
  const Graph g = b.finish();
  const std::vector<double> rows{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(interpret(g, {{{DType::f32, {3, 2}}, rows}, {{DType::i32, {2}}, {2, 0}}}, Precision::exact)[0].data,
            (std::vector<double>{5, 6, 1, 2}));
  for (double bad : {-1.0, 3.0, 2147483647.0, -2147483648.0})
    EXPECT_THROW(interpret(g, {{{DType::f32, {3, 2}}, rows}, {{DType::i32, {2}}, {0, bad}}}, Precision::exact),
                 UserError)
        << bad;
}

}  // namespace
}  // namespace lathe
