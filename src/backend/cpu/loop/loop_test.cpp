// The loop evaluator: accuracy of its functions, random programs against the interpreter, reductions of all forms,
// in-place work.
#include "backend/cpu/loop/loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "backend/cpu/isa.h"
#include "backend/cpu/site_test.h"
#include "ops/broadcast.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/fused.h"
#include "ops/reduce.h"

namespace lathe::cpu {
namespace {

class LoopIsa : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { force_isa(""); }
};
INSTANTIATE_TEST_SUITE_P(Loop, LoopIsa, testing::ValuesIn(available_isas()),
                         [](const auto& param) { return std::string(param.param); });

// Error in units of the last place of the f32 nearest to the exact value; denormals count as zero.
double ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  const float nearest = static_cast<float>(want);
  if (std::isinf(nearest)) return got == nearest ? 0 : INFINITY;
  constexpr double kSmallest = 1.17549435e-38;
  if (std::abs(want) < kSmallest) return std::abs(got) <= kSmallest ? 0 : INFINITY;
  const double unit = std::ldexp(1.0, std::ilogb(nearest) - 23);
  return std::abs(static_cast<double>(got) - want) / unit;
}

TEST_P(LoopIsa, FunctionsAreAccurate) {
  struct Case {
    ScalarOp op;
    double lo, hi, tolerance;
  };
  // sin and cos: the error near multiples of pi is that of the three-part reduction.
  const Case cases[] = {
      {ScalarOp::exp, -110, 95, 2},    {ScalarOp::log, 1e-6, 1e6, 2},    {ScalarOp::log, 0.9, 1.1, 2},
      {ScalarOp::tanh, -12, 12, 3},    {ScalarOp::tanh, -0.01, 0.01, 3}, {ScalarOp::sigmoid, -87, 40, 4},
      {ScalarOp::erf, -5, 5, 3},       {ScalarOp::erf, -0.1, 0.1, 3},    {ScalarOp::sqrt, 0, 100, 0.51},
      {ScalarOp::rsqrt, 0.01, 100, 2}, {ScalarOp::floor, -100, 100, 0},  {ScalarOp::sin, -1.5, 1.5, 3},
      {ScalarOp::cos, -1.5, 1.5, 3}};
  constexpr int64_t kCount = 100003;
  std::vector<float> x(kCount), y(kCount);
  for (const Case& c : cases) {
    for (int64_t i = 0; i < kCount; ++i)
      x[static_cast<size_t>(i)] = static_cast<float>(c.lo + (c.hi - c.lo) * static_cast<double>(i) / (kCount - 1));
    find_loop_fn(c.op, DType::f32, DType::f32)(y.data(), x.data(), nullptr, nullptr, kCount);
    double worst = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const double e =
          ulps(y[static_cast<size_t>(i)], apply(c.op, static_cast<double>(x[static_cast<size_t>(i)]), 0, 0));
      worst = std::max(worst, e);
    }
    EXPECT_LE(worst, c.tolerance) << to_string(c.op) << " on [" << c.lo << ", " << c.hi << "]";
  }
  // Far from zero the absolute error counts.
  for (ScalarOp op : {ScalarOp::sin, ScalarOp::cos})
    for (double range : {100.0, 8000.0, 1e9}) {
      for (int64_t i = 0; i < kCount; ++i)
        x[static_cast<size_t>(i)] = static_cast<float>(range * (2.0 * static_cast<double>(i) / kCount - 1));
      find_loop_fn(op, DType::f32, DType::f32)(y.data(), x.data(), nullptr, nullptr, kCount);
      double worst = 0;
      for (int64_t i = 0; i < kCount; ++i)
        worst = std::max(worst, std::abs(static_cast<double>(y[static_cast<size_t>(i)]) -
                                         apply(op, static_cast<double>(x[static_cast<size_t>(i)]), 0, 0)));
      EXPECT_LE(worst, 4e-7) << to_string(op) << " within " << range;
    }
}

TEST_P(LoopIsa, SpecialValuesFollowTheDefinition) {
  const float specials[] = {0.0f,     -0.0f,     1.0f, -1.0f,  0.5f,    3e38f, -3e38f,
                            INFINITY, -INFINITY, NAN,  100.0f, -100.0f, 1e-30f};
  std::vector<float> a, b;
  for (float p : specials)
    for (float q : specials) {
      a.push_back(p);
      b.push_back(q);
    }
  const int64_t n = static_cast<int64_t>(a.size());
  std::vector<float> y(a.size());
  std::vector<uint32_t> mask(a.size());
  for (int k = static_cast<int>(ScalarOp::add); k < static_cast<int>(ScalarOp::convert); ++k) {
    const ScalarOp op = static_cast<ScalarOp>(k);
    if (op == ScalarOp::select || op == ScalarOp::logical_and || op == ScalarOp::logical_or ||
        op == ScalarOp::logical_not)
      continue;
    const bool compares = op == ScalarOp::eq || op == ScalarOp::lt || op == ScalarOp::le || op == ScalarOp::is_finite;
    const LoopFn fn = find_loop_fn(op, compares ? DType::b8 : DType::f32, DType::f32);
    ASSERT_NE(fn, nullptr) << to_string(op);
    fn(compares ? static_cast<void*>(mask.data()) : y.data(), a.data(), b.data(), nullptr, n);
    for (size_t i = 0; i < a.size(); ++i) {
      const double want = apply(op, static_cast<double>(a[i]), static_cast<double>(b[i]), 0);
      if (compares)
        EXPECT_EQ(mask[i], want != 0 ? ~0u : 0u) << to_string(op) << " " << a[i] << " " << b[i];
      else
        EXPECT_LE(ulps(y[i], want), 4) << to_string(op) << " " << a[i] << " " << b[i] << " gave " << y[i];
    }
  }
}

// A random program: inputs of several types and broadcasts over one domain, some tens of nodes, one or two outputs.
struct Program {
  ParamsPtr params;
  std::vector<HostTensor> in;
};

class RandomProgram {
 public:
  explicit RandomProgram(uint32_t seed) : rng_(seed, 5, 0, 0) {}

  Program make(bool with_reduction) {
    Ints dims;
    int64_t numel = 1;
    for (int64_t d = 0, n = 1 + below(4); d < n; ++d) {
      const int64_t sizes[] = {1, 2, 3, 5, 16, 33, 64, 300};
      int64_t size = sizes[below(8)];
      if (numel * size > 90000) size = 1;
      dims.push_back(size);
      numel *= size;
    }
    domain_ = Shape(dims);
    Builder b("body");
    Program p;
    const auto input = [&](DType t) {
      const TensorType type{t, random_broadcast()};
      HostTensor h{type, {}};
      for (int64_t i = 0; i < type.numel(); ++i) {
        const double u = rng_.uniform(next_++);
        h.data.push_back(t == DType::b8    ? (u < 0.5 ? 0.0 : 1.0)
                         : t == DType::f32 ? round_to(t, 0.5 + u)
                                           : std::floor(u * 9));
      }
      p.in.push_back(h);
      return broadcast_to(b.input(type, InputKind::batch, "x" + std::to_string(p.in.size())), domain_);
    };
    Values numbers, flags;
    for (int64_t i = 0, n = 1 + below(4); i < n; ++i) numbers.push_back(input(DType::f32));
    flags.push_back(input(DType::b8));
    numbers.push_back(cast(input(DType::i32), DType::f32));
    numbers.push_back(cast(input(DType::u8), DType::f32));
    for (int64_t i = 0, n = 2 + below(20); i < n; ++i) step(numbers, flags);
    Value y = numbers.back();
    if (with_reduction) {
      Ints axes;
      for (int d = 0; d < domain_.ndim(); ++d)
        if (below(2)) axes.push_back(d);
      // Means, so that errors stay relative to what was added.
      Value r = below(2) ? reduce_mean(y, axes, true) : reduce_max(y, axes, true);
      if (below(2)) r = tanh(r) + 1.0;
      b.output(r, OutputKind::result, "r");
      if (below(2)) b.output(y, OutputKind::result, "y");
    } else {
      b.output(y, OutputKind::result, "y");
      if (below(2)) b.output(flags.back(), OutputKind::result, "f");
      if (below(2)) b.output(cast(minimum(y, constant_like(y, 100)), DType::i32), OutputKind::result, "i");
    }
    p.params = make_params(FusedParams{"loop", std::make_shared<const Graph>(b.finish())});
    return p;
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(rng_.below(next_++, static_cast<uint64_t>(n))); }

  Shape random_broadcast() {
    Ints dims = domain_.to_ints();
    if (below(2)) return Shape(dims);
    for (int64_t& d : dims)
      if (below(2)) d = 1;
    const size_t drop = static_cast<size_t>(below(static_cast<int64_t>(dims.size()) + 1));
    for (size_t i = 0; i < drop; ++i)
      if (dims[0] == 1) dims.erase(dims.begin());
    return Shape(dims);
  }

  // Values stay within a modest range, so that roundings cannot flip a comparison or blow up.
  void step(Values& numbers, Values& flags) {
    const auto any = [&](Values& v) { return v[static_cast<size_t>(below(static_cast<int64_t>(v.size())))]; };
    const Value a = any(numbers), c = any(numbers);
    switch (below(9)) {
      case 0: numbers.push_back(tanh(a + c)); break;
      case 1: numbers.push_back(sigmoid(a) * 2.0 + c * 0.125); break;
      case 2: numbers.push_back(maximum(a, c)); break;
      case 3: numbers.push_back(select(any(flags), a, c)); break;
      case 4: flags.push_back(logical_or(any(flags), logical_not(any(flags)))); break;
      case 5: numbers.push_back(relu(a - 0.5)); break;
      case 6: numbers.push_back(sqrt(abs(a) + 0.25)); break;
      case 7: numbers.push_back(cast(any(flags), DType::f32) + exp(a * -0.5)); break;
      default: flags.push_back(logical_and(any(flags), is_finite(a))); break;
    }
  }

  CounterRng rng_;
  uint64_t next_ = 0;
  Shape domain_;
};

// Roundings of some tens of instructions in f32, relative to the tensor.
constexpr double kTolerance = 1e-5;

void check(const OpDef& op, const Program& p, const std::vector<int>& alias = {}) {
  const auto want = run_reference(op, p.params, p.in);
  const SiteResult one = run_site(op, p.params, p.in, 1, alias);
  ASSERT_EQ(one.kernel, "cpu_loop") << one.declined;
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i].type.dtype == DType::i32) {
      // A rounding just below a whole number may truncate to the one below.
      double worst = 0;
      for (size_t k = 0; k < want[i].data.size(); ++k)
        worst = std::max(worst, std::abs(want[i].data[k] - one.out[i].data[k]));
      EXPECT_LE(worst, 1);
    } else {
      EXPECT_LE(tensor_error(one.out[i], want[i]), kTolerance) << "output " << i;
    }
  }
  for (int threads : {2, 8})
    EXPECT_EQ(run_site(op, p.params, p.in, threads, alias).bytes, one.bytes) << threads << " threads";
}

TEST_P(LoopIsa, RandomProgramsAgreeWithTheInterpreter) {
  for (uint32_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    check(fused_op, RandomProgram(seed).make(false));
  }
}

TEST_P(LoopIsa, RandomReductionsAgreeWithTheInterpreter) {
  for (uint32_t seed = 100; seed < 125; ++seed) {
    SCOPED_TRACE(seed);
    check(fused_op, RandomProgram(seed).make(true));
  }
}

TEST_P(LoopIsa, LargeReductionsAreAccurateAndRepeatable) {
  struct Case {
    Shape shape;
    Ints axes;
  };
  const Case cases[] = {{{1000003}, {0}},      {{7, 70001}, {1}},         {{70001, 7}, {0}},
                        {{5000, 65}, {0}},     {{1500, 1100}, {0}},       {{40, 5000}, {0}},
                        {{13, 300, 129}, {1}}, {{13, 300, 129}, {0, 2}},  {{64, 17, 3, 40}, {0, 2}},
                        {{100, 1000}, {0, 1}}, {{3000, 4, 1, 3}, {0, 2}}, {{200000, 2}, {1}}};
  for (const Case& c : cases)
    for (const OpDef* op : {&reduce_sum_op, &reduce_max_op}) {
      SCOPED_TRACE(fmt::format("{} {} over [{}]", op->name(), to_string(c.shape), fmt::join(c.axes, ", ")));
      // Values around 1: the sum of a million is where a plain f32 loop loses four digits.
      const Sample s{"", {{{DType::f32, c.shape}, 0.5, 1.5}}, make_params(ReduceParams{c.axes, false})};
      const auto in = sample_values(s, 3);
      const auto want = run_reference(*op, s.params, in);
      const SiteResult one = run_site(*op, s.params, in, 1);
      EXPECT_LE(tensor_error(one.out[0], want[0]), op == &reduce_max_op ? 0 : 1e-6);
      for (int threads : {2, 8})
        EXPECT_EQ(run_site(*op, s.params, in, threads).bytes, one.bytes) << threads << " threads";
    }
}

TEST_P(LoopIsa, ReductionsKeepNaN) {
  for (const Shape& shape : {Shape{50, 40}, Shape{3, 40000}})
    for (const Ints& axes : {Ints{0}, Ints{1}, Ints{0, 1}})
      for (const OpDef* op : {&reduce_sum_op, &reduce_max_op}) {
        const Sample s{"", {{{DType::f32, shape}}}, make_params(ReduceParams{axes, false})};
        auto in = sample_values(s, 3);
        in[0].data[static_cast<size_t>(shape[1] + 17)] = NAN;
        const auto want = run_reference(*op, s.params, in);
        EXPECT_LE(tensor_error(run_site(*op, s.params, in, 2).out[0], want[0]), kTolerance);
      }
}

// Every pattern read, and every pattern, its neighbours and the middles between them written, against base/dtype.h.
TEST_P(LoopIsa, SixteenBitsAreThoseOfDType) {
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  const LoopSimd& simd = loop_simd();
  for (const bool f16 : {true, false}) {
    std::vector<float> wide(bits.size() + 3), values;
    const auto value = [&](uint16_t b) { return f16 ? float_of_f16(b) : float_of_bf16(b); };
    (f16 ? simd.load_f16 : simd.load_bf16)(wide.data(), bits.data(), nullptr, nullptr, 65536);
    for (size_t i = 0; i < bits.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(value(bits[i]))) << i;
      for (const float scale : {1.0f, 1.0001f, 1.000977f, 0.999512f}) values.push_back(wide[i] * scale);
      const float next = value(static_cast<uint16_t>(i + 1));
      if (std::isfinite(next) && std::isfinite(wide[i])) values.push_back(wide[i] + (next - wide[i]) / 2);
    }
    std::vector<uint16_t> stored(values.size());
    std::vector<float> rounded(values.size());
    const auto n = static_cast<int64_t>(values.size());
    (f16 ? simd.store_f16 : simd.store_bf16)(stored.data(), values.data(), nullptr, nullptr, n);
    find_loop_fn(f16 ? ScalarOp::round_f16 : ScalarOp::round_bf16, DType::f32, DType::f32)(
        rounded.data(), values.data(), nullptr, nullptr, n);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t want = f16 ? f16_of_float(values[i]) : bf16_of_float(values[i]);
      ASSERT_EQ(stored[i], want) << values[i];
      ASSERT_EQ(std::bit_cast<uint32_t>(rounded[i]), std::bit_cast<uint32_t>(value(want))) << values[i];
    }
  }
}

// Elementwise ops and reductions of 16-bit values, plain and in a chain that rounds between its nodes.
TEST_P(LoopIsa, SixteenBitLoops) {
  for (DType t : {DType::f16, DType::bf16}) {
    for (const OpDef* op : elementwise_ops()) {
      const ElementwiseRow& row = *find_elementwise(op->name());
      if (row.in == ElementwiseRow::In::boolean) continue;
      Sample s{"", {}, make_params(NoParams{})};
      for (int i = 0; i < row.arity; ++i) {
        if (row.in == ElementwiseRow::In::choice && i == 0)
          s.inputs.push_back({{DType::b8, {3, 701}}, 0, 1});
        else
          s.inputs.push_back({{t, {3, 701}}, row.lo, row.hi});
      }
      const auto in = sample_values(s, 3);
      const SiteResult got = run_site(*op, s.params, in, 2);
      ASSERT_EQ(got.kernel, "cpu_loop") << got.declined;
      EXPECT_EQ(check_narrow(got.out[0], run_reference(*op, s.params, in)[0]), "") << op->name();
    }
    for (const OpDef* op : {&reduce_sum_op, &reduce_max_op})
      for (const Ints& axes : {Ints{0}, Ints{1}, Ints{0, 1}, Ints{}}) {
        // More values than the type can count: an accumulator of 16 bits would stop growing.
        const Sample s{"", {{{t, {30, 5000}}, 0.5, 1.5}}, make_params(ReduceParams{axes, true})};
        const auto in = sample_values(s, 3);
        EXPECT_EQ(check_narrow(run_site(*op, s.params, in, 2).out[0], run_reference(*op, s.params, in)[0]), "")
            << op->name();
      }
    Builder b("body");
    const Value x = b.input({t, {40, 900}}, InputKind::batch, "x"), row = b.input({t, {900}}, InputKind::batch, "row");
    const Value column = b.input({t, {40, 1}}, InputKind::batch, "column"),
                wide = b.input({DType::f32, {40, 900}}, InputKind::batch, "wide");
    const Value y = (x * row + column) * x;
    b.output(y, OutputKind::result, "y");
    b.output(cast(cast(y, DType::f32) + wide, t), OutputKind::result, "z");
    b.output(reduce_sum(square(y), {1}, true) * 0.3, OutputKind::result, "s");
    const auto params = make_params(FusedParams{"loop", std::make_shared<const Graph>(b.finish())});
    const Sample s{"", {{{t, {40, 900}}}, {{t, {900}}}, {{t, {40, 1}}}, {{DType::f32, {40, 900}}}}, params};
    const auto in = sample_values(s, 5);
    for (const std::vector<int>& alias :
         {std::vector<int>{}, std::vector<int>{0, -1, -1}, std::vector<int>{-1, 0, -1}}) {
      const SiteResult got = run_site(fused_op, params, in, 2, alias);
      ASSERT_EQ(got.kernel, "cpu_loop") << got.declined;
      const auto want = run_reference(fused_op, params, in);
      for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(check_narrow(got.out[i], want[i]), "") << "output " << i;
    }
  }
}

TEST(Loop, OtherTypes) {
  for (DType t : {DType::f64, DType::i32, DType::i64, DType::u8})
    for (const OpDef* op : elementwise_ops()) {
      const ElementwiseRow& row = *find_elementwise(op->name());
      if (row.in == ElementwiseRow::In::boolean || (row.in == ElementwiseRow::In::real && !is_float(t))) continue;
      SCOPED_TRACE(fmt::format("{} of {}", op->name(), to_string(t)));
      Sample s{"", {}, make_params(NoParams{})};
      for (int i = 0; i < row.arity; ++i) {
        if (row.in == ElementwiseRow::In::choice && i == 0)
          s.inputs.push_back({{DType::b8, {3, 700}}, 0, 1});
        else
          s.inputs.push_back({{t, {3, 700}}, is_float(t) ? row.lo : t == DType::u8 ? 0 : -9, is_float(t) ? row.hi : 9});
      }
      const auto in = sample_values(s, 3);
      const SiteResult got = run_site(*op, s.params, in, 2);
      ASSERT_EQ(got.kernel, "cpu_loop") << got.declined;
      EXPECT_LE(tensor_error(got.out[0], run_reference(*op, s.params, in)[0]), 1e-14);
    }
  for (DType t : {DType::f64, DType::i32, DType::i64, DType::u8})
    for (const OpDef* op : {&reduce_sum_op, &reduce_max_op})
      for (const Ints& axes : {Ints{0}, Ints{1}, Ints{0, 1}, Ints{}}) {
        const Sample s{"", {{{t, {30, 5000}}, 0, 5}}, make_params(ReduceParams{axes, true})};
        const auto in = sample_values(s, 3);
        EXPECT_LE(tensor_error(run_site(*op, s.params, in, 2).out[0], run_reference(*op, s.params, in)[0]), 1e-12)
            << op->name() << " of " << to_string(t);
      }
  for (DType from : kAllDTypes)
    for (DType to : kAllDTypes) {
      Sample s{"",
               {{{from, {1500}}, is_float(from) ? -300.0 : 0.0, from == DType::b8 ? 1.0 : 250.0}},
               make_params(CastParams{to})};
      auto in = sample_values(s, 3);
      if (is_float(from)) {
        in[0].data[0] = NAN;
        in[0].data[1] = INFINITY;
        in[0].data[2] = round_to(from, -1e30);
      }
      EXPECT_LE(tensor_error(run_site(cast_op, s.params, in, 2).out[0], run_reference(cast_op, s.params, in)[0]), 0)
          << to_string(from) << " to " << to_string(to);
    }
}

// One fused update: each output lies over an input that all reads take at the same index.
Program momentum(int64_t n) {
  Builder b("body");
  const TensorType t{DType::f32, {n}};
  const Value p = b.input(t, InputKind::batch, "p"), m = b.input(t, InputKind::batch, "m"),
              g = b.input(t, InputKind::batch, "g");
  const Value rate = b.input({DType::f32, {}}, InputKind::batch, "rate");
  const Value next = m * 0.9 + g;
  const Value moved = p - next * rate - m * 0.01;  // reads the old m after the new one is known
  b.output(next, OutputKind::result, "m");
  b.output(moved, OutputKind::result, "p");
  b.output(maximum(p, m), OutputKind::result, "x");
  Sample s{"",
           {{t}, {t}, {t}, {{DType::f32, {}}}},
           make_params(FusedParams{"loop", std::make_shared<const Graph>(b.finish())})};
  return {s.params, sample_values(s, 9)};
}

TEST(Loop, WorksInPlace) {
  for (int64_t n : {1, 15, 1000, 40000}) {
    const Program p = momentum(n);
    for (const std::vector<int>& alias : {std::vector<int>{1, 0, 2}, {0, 1, 2}, {2, 1, 0}, {-1, -1, 0}, {1, -1, -1}}) {
      SCOPED_TRACE(fmt::format("{} elements, over inputs {}", n, fmt::join(alias, ", ")));
      check(fused_op, p, alias);
    }
  }
}

TEST(Loop, SwapsItsInputsInPlace) {
  Builder b("body");
  const TensorType t{DType::f32, {5000}};
  const Value x = b.input(t, InputKind::batch, "x"), y = b.input(t, InputKind::batch, "y");
  b.output(y, OutputKind::result, "a");
  b.output(x, OutputKind::result, "b");
  b.output(x + y, OutputKind::result, "c");
  const Sample s{"", {{t}, {t}}, make_params(FusedParams{"loop", std::make_shared<const Graph>(b.finish())})};
  check(fused_op, {s.params, sample_values(s, 2)}, {0, 1, -1});
}

TEST(Loop, BooleansInPlace) {
  const Sample s{"", {{{DType::b8, {3000}}, 0, 1}, {{DType::b8, {3000}}, 0, 1}}, make_params(NoParams{})};
  for (const OpDef* op : elementwise_ops())
    if (op->name() == "logical_and") check(*op, {s.params, sample_values(s, 2)}, {1});
}

TEST(Loop, RefusesWhatDoesNotFit) {
  // More live values than a thread has registers.
  Builder b("body");
  const TensorType t{DType::f32, {100}};
  Values x;
  for (int i = 0; i < 300; ++i) x.push_back(tanh(b.input(t, InputKind::batch, "x" + std::to_string(i))));
  Value sum = x[0];
  for (size_t i = 1; i < x.size(); ++i) sum = sum + x[i] * x[0];
  b.output(sum, OutputKind::result, "y");
  const Sample s{"", std::vector<SampleInput>(300, SampleInput{t}),
                 make_params(FusedParams{"loop", std::make_shared<const Graph>(b.finish())})};
  const SiteResult r = run_site(fused_op, s.params, sample_values(s, 1), 1);
  EXPECT_EQ(r.kernel, "");
  EXPECT_NE(r.declined.find("instructions"), std::string::npos) << r.declined;
}

}  // namespace
}  // namespace lathe::cpu
