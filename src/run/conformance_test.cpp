#include "run/conformance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <random>

#include "backend/host_device.h"
#include "backend/ref/ref_backend.h"
#include "ir/print.h"
#include "ops/registry.h"
#include "passes/pass.h"
#include "plan/test_graphs.h"
#include "run/run_graph.h"

namespace lathe {
namespace {

std::vector<HostTensor> random_inputs(const Graph& g, uint32_t seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<HostTensor> out;
  for (const Input& in : g.inputs) {
    HostTensor t{g.type(in.value), {}};
    for (int64_t i = 0; i < t.type.numel(); ++i) t.data.push_back(round_to(t.type.dtype, uniform(rng)));
    out.push_back(std::move(t));
  }
  return out;
}

// Random graphs, with state in all its forms, through passes, plan and device against the interpreter.
void check_random_graphs(const Backend& backend, bool passes, uint32_t seeds) {
  const Target target = backend.target({});
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(fmt::format("{} seed {}", backend.name(), seed));
    const Graph g = testing::random_graph(seed, 10 + static_cast<int>(seed) * 2);
    const Graph lowered = passes ? run_pipeline(g, {target}) : g;
    const auto inputs = random_inputs(g, seed);
    const auto expected = interpret(g, inputs, Precision::exact);
    const auto actual = run_graph(backend, {}, lowered, inputs);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_LE(relative_error(actual[i], expected[i]), 2e-4) << g.outputs[i].name;
  }
}

// The graph with all of its f32 in another type.
Graph with_type(const Graph& g, DType t) {
  std::string text = print(g);
  for (const std::string_view mark : {" f32[", "dtype=f32"})
    for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos;) {
      const size_t name = at + mark.find("f32");
      text.replace(name, 3, to_string(t));
      at = name;
    }
  return parse_graph(text, registry());
}

void check_training_steps(const Backend& backend, bool passes) {
  const Target target = backend.target({});
  std::vector<Graph> graphs{testing::mlp_step(5, {12, 20, 7})};
  if (target.is_native("conv2d"))
    graphs.push_back(testing::conv_step(2, 8, 3, 3));
  else
    std::cout << "[SKIP] " << backend.name() << ": no kernel for conv2d\n";
  for (const Graph& g : graphs) {
    const auto inputs = random_inputs(g, 1);
    const auto expected = interpret(g, inputs, Precision::exact);
    const auto actual = run_graph(backend, {}, passes ? run_pipeline(g, {target}) : g, inputs);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_LE(relative_error(actual[i], expected[i]), 2e-4) << g.name << " " << g.outputs[i].name;
  }
}

// One instance for each backend. A backend without a device is skipped with its reason, never passed in silence.
class OnBackend : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    backend_ = &find_backend(GetParam());
    if (backend_->devices().empty()) GTEST_SKIP() << "[SKIP] " << GetParam() << ": " << backend_->unavailable_reason();
  }
  const Backend* backend_ = nullptr;
};

TEST_P(OnBackend, AgreesWithTheReference) {
  const ConformanceReport r = run_conformance(*backend_, {});
  EXPECT_EQ(r.failed(), 0) << to_text(r);
  EXPECT_GT(r.passed(), 0);
  EXPECT_EQ(r.declined(), 0) << to_text(r);
  std::cout << GetParam() << ": " << r.passed() << " passed, " << r.declined() << " declined\n";
}

TEST_P(OnBackend, RunsRandomGraphs) {
  // Every fused loop of a random graph is a kernel to compile on a device that compiles.
  const uint32_t seeds = backend_->target({}).host_memory ? 40 : 3;
  check_random_graphs(*backend_, false, seeds);
  check_random_graphs(*backend_, true, seeds);
}

// Values of 16 bits are rounded at every node, fused or not: on ref, where nothing else rounds, passes change no bit.
// On devices an error in f32 next to a middle becomes one of 16 bits, which later nodes see.
TEST_P(OnBackend, RandomGraphsOf16BitsAreTheSameFused) {
  const bool exact = backend_->name() == "ref";
  const uint32_t seeds = backend_->target({}).host_memory ? 20 : 2;
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    const DType t = seed % 2 == 0 ? DType::bf16 : DType::f16;
    SCOPED_TRACE(fmt::format("seed {} in {}", seed, to_string(t)));
    const Graph g = with_type(testing::random_graph(seed, 10 + static_cast<int>(seed) * 2), t);
    const auto inputs = random_inputs(g, seed);
    const auto expected = interpret(g, inputs, Precision::rounded);
    for (const bool passes : {false, true}) {
      const auto actual = run_graph(*backend_, {}, passes ? run_pipeline(g, {backend_->target({})}) : g, inputs);
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_LE(relative_error(actual[i], expected[i]), exact              ? 0
                                                          : t == DType::bf16 ? 0.03
                                                                             : 0.004)
            << g.outputs[i].name << (passes ? ", after passes" : "");
    }
  }
}

TEST_P(OnBackend, RunsTrainingSteps) {
  // Without fusion a device compiles every op by itself, which the samples have done already.
  if (backend_->target({}).host_memory) check_training_steps(*backend_, false);
  check_training_steps(*backend_, true);
}

// Two states, each written over itself by a node that reads both: fused, it is one loop with two results in place.
TEST_P(OnBackend, WritesSeveralStatesInPlace) {
  for (int64_t n : {1, 100, 100003}) {
    Builder b("butterfly");
    const Value x = b.input({DType::f32, {n}}, InputKind::param, "a"),
                y = b.input({DType::f32, {n}}, InputKind::param, "b");
    b.update(x, tanh(x + y));
    b.update(y, tanh(x - y));
    const Graph g = b.finish();
    const auto inputs = random_inputs(g, 3);
    const auto expected = interpret(g, inputs, Precision::exact);
    for (bool passes : {false, true}) {
      const auto actual = run_graph(*backend_, {}, passes ? run_pipeline(g, {backend_->target({})}) : g, inputs);
      for (size_t i = 0; i < 2; ++i) EXPECT_LE(relative_error(actual[i], expected[i]), 5e-6) << n << " " << passes;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, OnBackend, ::testing::Values("ref", "cpu", "opencl"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Conformance, RefRunsEverySample) {
  const ConformanceReport r = run_conformance(ref_backend(), {});
  EXPECT_EQ(r.failed(), 0) << to_text(r);
  EXPECT_EQ(r.declined(), 0) << to_text(r);
  for (const OpConformance& op : r.ops) EXPECT_GT(op.passed, 0) << op.op << " has no samples";
}

// A backend whose kernels are wrong in the ways the suite must see.
class Faulty final : public Backend {
 public:
  // The last two are kernels of f16: one cuts where it should round, one is right.
  enum class Fault { wrong_value, unwritten, beyond, input, cut, rounds };
  explicit Faulty(Fault f) { fault = f; }
  std::string_view name() const override { return "faulty"; }
  const KernelTable& kernels() const override {
    static const KernelTable table(
        {{"tanh",
          {"bad",
           [](const Site& s) { return std::string(is_16bit(s.in[0].dtype) == (fault >= Fault::cut) ? "" : "not now"); },
           nullptr,
           [](Device& d, const Site&, const KernelArgs& a) -> std::unique_ptr<Kernel> {
             return std::make_unique<Bad>(host_device(d), a);
           }}}});
    return table;
  }
  Target target(const DeviceOptions&) const override {
    Target t;
    t.dtypes = {DType::f32, DType::f16};
    return t;
  }
  std::vector<DeviceInfo> devices() const override { return {{"faulty", "", 0}}; }
  std::unique_ptr<Device> open(const DeviceOptions&) const override {
    return std::make_unique<HostDevice>(target({}), 1);
  }

 private:
  static inline Fault fault;
  struct Bad final : Kernel {
    Bad(HostDevice& d, const KernelArgs& args) : device(d), a(args) {}
    void run_f16() {
      const auto* x = reinterpret_cast<const Half*>(device.address(a.in[0]));
      auto* y = reinterpret_cast<Half*>(device.address(a.out[0]));
      for (int64_t i = 0; i < a.out[0].bytes / 2; ++i) {
        const float v = std::tanh(static_cast<float>(x[i]));
        y[i] = Half(v);
        if (fault == Fault::cut && std::abs(static_cast<float>(y[i])) > std::abs(v)) --y[i].bits;
      }
    }
    void run(Stream&) override {
      if (fault >= Fault::cut) return run_f16();
      auto* x = reinterpret_cast<float*>(device.address(a.in[0]));
      auto* y = reinterpret_cast<float*>(device.address(a.out[0]));
      const int64_t n = a.out[0].bytes / 4;
      if (n == 0) return;
      for (int64_t i = 0; i < n; ++i) y[i] = std::tanh(x[i]);
      if (fault == Fault::wrong_value) y[n / 2] += 0.01f;
      if (fault == Fault::unwritten) std::memset(y + n - 1, 0xFF, 4);
      if (fault == Fault::beyond) y[-1] = 1;  // the end of the input, or the gap behind it
      if (fault == Fault::input) x[0] = 0;
    }
    HostDevice& device;
    KernelArgs a;
  };
};

TEST(Conformance, SeesWrongKernels) {
  for (auto fault : {Faulty::Fault::wrong_value, Faulty::Fault::unwritten, Faulty::Fault::beyond, Faulty::Fault::input,
                     Faulty::Fault::cut}) {
    const ConformanceReport r = run_conformance(Faulty(fault), {}, "tanh");
    EXPECT_GT(r.failed(), 0) << static_cast<int>(fault);
    EXPECT_NE(to_text(r).find("FAILED tanh"), std::string::npos);
  }
  const ConformanceReport good = run_conformance(Faulty(Faulty::Fault::rounds), {}, "tanh");
  EXPECT_EQ(good.failed(), 0) << to_text(good);
  EXPECT_GT(good.passed(), 0);
  const ConformanceReport none = run_conformance(Faulty(Faulty::Fault::beyond), {}, "matmul");
  EXPECT_EQ(none.passed(), 0);
  EXPECT_GT(none.declined(), 0);
}

TEST(RelativeError, ComparesWhatMatters) {
  const auto t = [](DType d, std::vector<double> v) { return HostTensor{{d, {static_cast<int64_t>(v.size())}}, v}; };
  EXPECT_EQ(relative_error(t(DType::f32, {1, NAN}), t(DType::f32, {1, NAN})), 0);
  EXPECT_TRUE(std::isinf(relative_error(t(DType::f32, {1, 0}), t(DType::f32, {1, NAN}))));
  EXPECT_TRUE(std::isinf(relative_error(t(DType::i32, {1, 2}), t(DType::i32, {1, 3}))));
  EXPECT_DOUBLE_EQ(relative_error(t(DType::f32, {1, 100}), t(DType::f32, {2, 100})), 0.01);
  EXPECT_TRUE(std::isinf(relative_error(t(DType::f32, {1}), t(DType::f64, {1}))));
}

}  // namespace
}  // namespace lathe
