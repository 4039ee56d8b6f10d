// Faults planted in the calls of the cuda backend: the simulator must find each of them. (A wrong epilogue:
// chain_test.cpp.)
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_matmul.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "plan/plan.h"
#include "run/conformance.h"
#include "run/executor.h"
#include "run/run_graph.h"
#include "sim.h"

namespace lathe {
namespace {

class CudaSimFault : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("LATHE_CACHE_DIR", LATHE_SIM_CACHE, 0);
    real_ = api_ = sim::simulator_api();
    sim::take_reports();
  }

  // z = x y + x, staged and run twice through the Executor.
  std::unique_ptr<Executor> make_step() {
    Builder b("step");
    const TensorType t{DType::f32, {32, 32}};
    const Value x = b.input(t, InputKind::batch, "x"), y = b.input(t, InputKind::batch, "y");
    b.output(exp(matmul(x, y)) + x, OutputKind::result, "z");
    const CudaBackend backend(&api_);
    std::vector<Graph> graphs;
    graphs.push_back(b.finish());
    return std::make_unique<Executor>(plan(std::move(graphs), backend.target({}), backend.kernels()), backend.open({}),
                                      ExecutorOptions{2, false});
  }
  static float run_step(Executor& e, int slot, float value) {
    for (const char* name : {"x", "y"}) {
      const std::vector<float> fill(32 * 32, value);
      std::memcpy(e.staging(slot, name), fill.data(), 4 * fill.size());
    }
    e.stage(0, slot);
    e.run(0, slot);
    float z = 0;
    std::memcpy(&z, e.result("z").data(), sizeof z);
    return z;
  }
  template <class F>
  std::string error_of(F&& f) {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }

  cuda::Api api_;
  static cuda::Api real_;
};
cuda::Api CudaSimFault::real_;

TEST_F(CudaSimFault, NoneIsFoundWhereNoneIs) {
  const auto e = make_step();
  EXPECT_NEAR(run_step(*e, 0, 0.1f), std::exp(0.32f) + 0.1f, 1e-5);
  EXPECT_NEAR(run_step(*e, 1, 0.2f), std::exp(1.28f) + 0.2f, 1e-4);
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

TEST_F(CudaSimFault, SwappedLeadingDimension) {
  api_.cublasLtMatrixLayoutCreate = [](cuda::LtLayout* l, int type, uint64_t rows, uint64_t cols, int64_t) {
    return real_.cublasLtMatrixLayoutCreate(l, type, rows, cols, static_cast<int64_t>(cols));
  };
  const CudaBackend backend(&api_);
  const ConformanceReport report = run_conformance(backend, {}, "matmul");
  EXPECT_GT(report.failed(), 10) << to_text(report);
}

TEST_F(CudaSimFault, MissingWait) {
  api_.cuStreamWaitEvent = [](cuda::StreamHandle, cuda::EventHandle, unsigned) { return int{cuda::kSuccess}; };
  const auto e = make_step();
  const std::string error = error_of([&] { run_step(*e, 0, 1); });
  EXPECT_NE(error.find("race: \"cuMemcpyDtoDAsync\" on stream"), std::string::npos) << error;
  EXPECT_NE(error.find("\"cuMemcpyHtoDAsync\""), std::string::npos) << error;
}

std::vector<cuda::Address> allocated;

TEST_F(CudaSimFault, FreedArena) {
  allocated.clear();
  api_.cuMemAlloc_v2 = [](cuda::Address* a, size_t bytes) {
    const int status = real_.cuMemAlloc_v2(a, bytes);
    allocated.push_back(*a);
    return status;
  };
  const auto e = make_step();
  run_step(*e, 0, 1);
  ASSERT_FALSE(allocated.empty());
  EXPECT_EQ(api_.cuMemFree_v2(allocated[0]), cuda::kSuccess);
  const std::string error = error_of([&] { run_step(*e, 1, 1); });
  EXPECT_NE(error.find("that was freed"), std::string::npos) << error;
}

TEST_F(CudaSimFault, GridBeyondTheLimit) {
  api_.cuLaunchKernel = [](cuda::Function f, unsigned x, unsigned, unsigned z, unsigned bx, unsigned by, unsigned bz,
                           unsigned shared, cuda::StreamHandle s, void** p, void** extra) {
    return real_.cuLaunchKernel(f, x, 65536, z, bx, by, bz, shared, s, p, extra);
  };
  const std::string error = error_of([&] { make_step(); });
  EXPECT_NE(error.find("65536 x 1 blocks"), std::string::npos) << error;
}

TEST_F(CudaSimFault, UnsupportedType) {
  api_.cublasLtMatmulDescCreate = [](cuda::LtMatmulDesc* d, int, int) {
    return real_.cublasLtMatmulDescCreate(d, cuda::kCompute16F, cuda::kR16F);
  };
  // The library declines it, which is noted; the number comes from another kernel.
  const auto e = make_step();
  const auto notes = e->device().notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("cuBLASLt has nothing for 1 node, own kernels run (matmul of f32[32, 32], f32[32, 32]"),
            std::string::npos)
      << notes[0];
  EXPECT_NEAR(run_step(*e, 0, 0.1f), std::exp(0.32f) + 0.1f, 1e-5);
  const std::string error = error_of([&] {
    CudaMatmulSpec spec;
    spec.m = spec.n = spec.k = 8;
    CudaMatmul(as_cuda(e->device()), spec, {});
  });
  EXPECT_NE(error.find("CUBLAS_STATUS_NOT_SUPPORTED"), std::string::npos) << error;
}

// 16 bits that are declared as the other kind of 16 bits: nothing declines, the numbers are wrong. In one matrix alone
// it is a combination that the library does not have.
int layouts_made = 0;
TEST_F(CudaSimFault, OtherTypeOfEqualSize) {
  Builder b("product");
  const TensorType t{DType::bf16, {8, 8}};
  const Value x = b.input(t, InputKind::batch, "x"), y = b.input(t, InputKind::batch, "y");
  b.output(matmul(x, y), OutputKind::result, "z");
  const Graph g = b.finish();
  std::vector<HostTensor> inputs(2, HostTensor{t, std::vector<double>(64)});
  for (size_t i = 0; i < 64; ++i) {
    inputs[0].data[i] = static_cast<double>(i % 7) / 4 - 0.5;
    inputs[1].data[i] = static_cast<double>(i % 5) / 4 - 0.25;
  }
  const auto error_of_product = [&] {
    const CudaBackend backend(&api_);
    return relative_error(run_graph(backend, {}, g, inputs)[0], interpret(g, inputs, Precision::rounded)[0]);
  };
  EXPECT_LT(error_of_product(), 8e-3);
  api_.cublasLtMatrixLayoutCreate = [](cuda::LtLayout* l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    return real_.cublasLtMatrixLayoutCreate(l, type == cuda::kR16BF ? int{cuda::kR16F} : type, rows, cols, ld);
  };
  const int64_t before = sim::counters().matmuls;
  EXPECT_FALSE(error_of_product() < 0.05);
  EXPECT_EQ(sim::counters().matmuls, before + 1) << "the library was not asked";
  layouts_made = 0;
  api_.cublasLtMatrixLayoutCreate = [](cuda::LtLayout* l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    return real_.cublasLtMatrixLayoutCreate(l, ++layouts_made == 1 ? int{cuda::kR16F} : type, rows, cols, ld);
  };
  const CudaBackend backend(&api_);
  const auto device = backend.open({});
  const std::string error = error_of([&] {
    CudaMatmulSpec spec;
    spec.m = spec.n = spec.k = 8;
    spec.type = cuda::kR16BF;
    CudaMatmul(as_cuda(*device), spec, {});
  });
  EXPECT_NE(error.find("CUBLAS_STATUS_NOT_SUPPORTED"), std::string::npos) << error;
}

// Legal accesses stay legal however many allocations there are.
TEST_F(CudaSimFault, NoneIsFoundAmongManyAllocations) {
  const CudaBackend backend(&api_);
  const auto device = backend.open({});
  constexpr int kSegments = 40;
  device->allocate(std::vector<int64_t>(kSegments, 256));
  KernelCall call;
  call.name = "fill";
  call.source = "KERNEL void fill(GLOBAL int* x, const long at) { x[LOCAL_ID] = 7; }\n";
  call.args = {out_arg(0, DType::i32)};
  call.group_size = 64;
  for (int s = 0; s < kSegments; ++s) {
    const KernelArgs args{{Buffer{s, 0, 256}}, {}, {}};
    EXPECT_EQ(error_of([&] { as_cuda(*device).bind("fill", {call}, args)->run(device->stream(Lane::compute)); }),
              "no error")
        << s;
  }
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

TEST_F(CudaSimFault, KernelPastItsBuffer) {
  // Every launch reads and writes one megabyte further.
  api_.cuLaunchKernel = [](cuda::Function f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                           unsigned shared, cuda::StreamHandle s, void** p, void** extra) {
    uint64_t first = 0;
    std::memcpy(&first, p[0], 8);
    first += 1 << 20;
    void* const kept = std::exchange(p[0], &first);
    const int status = real_.cuLaunchKernel(f, x, y, z, bx, by, bz, shared, s, p, extra);
    p[0] = kept;
    return status;
  };
  const auto e = make_step();
  const std::string error = error_of([&] { run_step(*e, 0, 1); });
  EXPECT_NE(error.find("past an allocation"), std::string::npos) << error;
}

TEST_F(CudaSimFault, DivergentBarrier) {
  const CudaBackend backend(&api_);
  const auto run = [&](const std::string& name, const std::string& body) {
    const auto device = backend.open({});
    device->allocate(std::vector<int64_t>{256});
    KernelCall call;
    call.name = name;
    call.source = fmt::format("KERNEL void {}(GLOBAL int* x, const long at) {{\n{}\n}}\n", name, body);
    call.args = {out_arg(0, DType::i32)};
    call.group_size = 4;
    const KernelArgs args{{Buffer{0, 0, 256}}, {}, {}};
    return error_of([&] { as_cuda(*device).bind(name, {call}, args)->run(device->stream(Lane::compute)); });
  };
  EXPECT_EQ(run("meets", "x[LOCAL_ID] = 1;\nBARRIER();\nx[LOCAL_ID] += x[3 - LOCAL_ID];\n"), "no error");
  std::string error = run("leaves", "if (LOCAL_ID == 2) return;\nBARRIER();\nx[LOCAL_ID] = 1;\n");
  EXPECT_NE(error.find("thread 0 waits at a barrier"), std::string::npos) << error;
  EXPECT_NE(error.find("thread 2 has left"), std::string::npos) << error;
  error = run("parts", "if (LOCAL_ID == 3) {\nBARRIER();\nx[0] = 1;\n} else {\nBARRIER();\n}\n");
  EXPECT_NE(error.find("thread 3 waits at another"), std::string::npos) << error;
  EXPECT_EQ(sim::take_reports().size(), 2u);
}

TEST_F(CudaSimFault, PinnedMemoryChangedTooEarly) {
  const auto e = make_step();
  e->stage(0, 0);
  std::memset(e->staging(0, "x"), 1, 64);
  const std::string error = error_of([&] {
    e->run(0, 0);
    e->synchronize();
  });
  EXPECT_NE(error.find("the host changed"), std::string::npos) << error;
}

TEST_F(CudaSimFault, WorkThatACaptureForbids) {
  const CudaBackend backend(&api_);
  const auto device = backend.open({});
  device->allocate(std::vector<int64_t>{256});
  std::string error = error_of([&] { device->record("p", [](Stream& s) { s.synchronize(); }); });
  EXPECT_NE(error.find("STREAM_CAPTURE_UNSUPPORTED"), std::string::npos) << error;
  const auto event = device->make_event();
  device->stream(Lane::transfer).record(*event);
  error = error_of([&] { device->record("p", [&](Stream& s) { s.wait(*event); }); });
  EXPECT_NE(error.find("STREAM_CAPTURE_ISOLATION"), std::string::npos) << error;
  error = error_of([&] {
    device->record("p", [&](Stream& s) {
      std::vector<char> pageable(256);
      s.copy_in({0, 0, 256}, pageable.data());
    });
  });
  EXPECT_NE(error.find("pageable"), std::string::npos) << error;
}

TEST_F(CudaSimFault, BackendNamesWhatDoesNotFit) {
  const CudaBackend backend(&api_);
  const auto device = backend.open({});
  device->allocate(std::vector<int64_t>{256});
  KernelCall call;
  call.name = "wide";
  call.groups = {100000, 100000, 1};
  std::string error = error_of([&] { as_cuda(*device).bind("wide", {call}, {}); });
  EXPECT_NE(error.find("larger than the device's"), std::string::npos) << error;
  error = error_of([&] { backend.open({})->allocate(std::vector<int64_t>{int64_t{1} << 40}); });
  EXPECT_NE(error.find("the plan needs 1099511627776 bytes on the card, 2147483"), std::string::npos) << error;
  error = error_of([&] { backend.open({3, 0}); });
  EXPECT_NE(error.find("cuda:3: there is 1 device"), std::string::npos) << error;
}

}  // namespace
}  // namespace lathe
