// Which libraries a machine has, what is said about those that it lacks, and what still runs; and the products of types
// that no op computes in yet.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_matmul.h"
#include "backend/cuda/cuda_measure.h"
#include "process.h"
#include "run/conformance.h"
#include "sim.h"
#include "sim_numbers.h"

namespace lathe {
namespace {

// A folder with some of the simulator's libraries.
class Libraries {
 public:
  explicit Libraries(std::initializer_list<const char*> names) {
    for (const char* n : names) std::filesystem::create_symlink(std::string(LATHE_CUDA_SIM_LIBS "/") + n, dir_.path(n));
  }
  cuda::Api load() const { return cuda::load_api(dir_.path()); }

 private:
  test::TempDir dir_;
};

void expect_text(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* p : parts) EXPECT_NE(text.find(p), std::string::npos) << p << " in: " << text;
}

TEST(CudaSimLibraries, NoDriver) {
  const cuda::Api api = Libraries({}).load();
  const CudaBackend backend(&api);
  EXPECT_TRUE(backend.devices().empty());
  expect_text(backend.unavailable_reason(), {"no NVIDIA driver", "libcuda.so.1", "CUDA 12.0", "R525"});
  // The table and a target are there all the same: a plan needs no card.
  EXPECT_TRUE(backend.target({}).is_native("matmul"));
  EXPECT_TRUE(backend.target({}).missing.empty());
}

TEST(CudaSimLibraries, NoCompiler) {
  const cuda::Api api = Libraries({"libcuda.so.1"}).load();
  const CudaBackend backend(&api);
  EXPECT_TRUE(backend.devices().empty());
  expect_text(backend.unavailable_reason(), {"no NVRTC", "CUDA 12 or 13", "LD_LIBRARY_PATH"});
}

TEST(CudaSimLibraries, WithoutCublasAndCudnnTheDialectTakesOver) {
  setenv("LATHE_CACHE_DIR", LATHE_SIM_CACHE, 0);
  cuda::Api api = Libraries({"libcuda.so.1", "libnvrtc.so.13"}).load();
  expect_text(api.cublaslt_missing, {"no cuBLASLt", "libcublasLt.so.13", "CUDA 12 or 13"});
  expect_text(api.cudnn_missing, {"no cuDNN", "libcudnn.so.9", "cuDNN 9"});
  const CudaBackend backend(&api);
  ASSERT_EQ(backend.devices().size(), 1u);
  for (const char* op : {"matmul", "conv2d_dw"}) {
    const ConformanceReport report = run_conformance(backend, {}, op);
    EXPECT_EQ(report.failed() + report.declined(), 0) << to_text(report);
    // The dialect's product, the same on 16-bit operands, and behind casts.
    EXPECT_EQ(report.ops[0].kernels.size(), 3u) << to_text(report);
    for (const std::string& kernel : report.ops[0].kernels) EXPECT_TRUE(kernel.starts_with("cuda_")) << kernel;
  }
}

// A version that the libraries of the folder report.
class Version {
 public:
  Version(const char* name, const char* number) : name_(std::string("LATHE_CUDA_SIM_") + name) {
    setenv(name_.c_str(), number, 1);
  }
  ~Version() { unsetenv(name_.c_str()); }

 private:
  std::string name_;
};

TEST(CudaSimLibraries, DriverTooOld) {
  const Version old("DRIVER", "11080");
  const cuda::Api api = Libraries({"libcuda.so.1", "libnvrtc.so.13"}).load();
  const CudaBackend backend(&api);
  EXPECT_TRUE(backend.devices().empty());
  expect_text(backend.unavailable_reason(), {"driver is too old", "it is for CUDA 11.8", "CUDA 12.0 or newer", "R525"});
  try {
    backend.open({});
    FAIL() << "no error";
  } catch (const DeviceError& e) {
    expect_text(e.what(), {"cuda: the NVIDIA driver is too old"});
  }
}

// Libraries of CUDA 13 do not run on a driver for CUDA 12: they are passed by.
TEST(CudaSimLibraries, LibrariesNewerThanTheDriver) {
  const Version twelve("DRIVER", "12040");
  const cuda::Api api = Libraries({"libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13"}).load();
  expect_text(api.nvrtc_missing,
              {"no NVRTC", "libnvrtc.so.12", "NVRTC of CUDA 12 is needed", "driver is for CUDA 12.4"});
  expect_text(api.cublaslt_missing, {"libcublasLt.so.12", "cuBLASLt of CUDA 12 is needed"});
  EXPECT_EQ(api.nvrtc_missing.find("13"), std::string::npos) << api.nvrtc_missing;
}

TEST(CudaSimLibraries, LibrariesTooOld) {
  const Version cublas("CUBLASLT", "111103"), cudnn("CUDNN", "8907"), nvrtc("NVRTC", "11080");
  const cuda::Api api = Libraries({"libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13", "libcudnn.so.9"}).load();
  expect_text(api.nvrtc_missing, {"NVRTC is too old", "version 11.8", "CUDA 12 or 13"});
  expect_text(api.cublaslt_missing, {"cuBLASLt is too old", "version 111103", "CUDA 12 or 13"});
  expect_text(api.cudnn_missing, {"cuDNN is too old", "version 8.9.7", "cuDNN 9 is needed"});
}

TEST(CudaSimLibraries, AllOfThem) {
  const cuda::Api api = Libraries({"libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13", "libcudnn.so.9"}).load();
  EXPECT_EQ(api.driver_missing + api.nvrtc_missing + api.cublaslt_missing + api.cudnn_missing, "");
}

// d = gelu(a b^T + bias) for one batch of small matrices of every type.
TEST(CudaSimMatmul, EveryTypeWithItsEpilogue) {
  const cuda::Api api = sim::simulator_api();
  const CudaBackend backend(&api);
  constexpr int64_t kM = 5, kN = 7, kK = 3;
  for (const int type : {cuda::kR32F, cuda::kR16F, cuda::kR16BF}) {
    const auto opened = backend.open({});
    CudaDevice& device = as_cuda(*opened);
    device.allocate(std::vector<int64_t>{4096});
    const auto value = [](int64_t i) { return static_cast<double>(i * 37 % 17 - 8) / 16; };
    std::vector<std::byte> host(4096);
    for (int64_t i = 0; i < kM * kK; ++i) sim::store_number(host.data(), i, type, value(i));
    for (int64_t i = 0; i < kN * kK; ++i) sim::store_number(host.data() + 1024, i, type, value(i + 5));
    for (int64_t i = 0; i < kN; ++i) sim::store_number(host.data() + 2048, i, type, value(i + 11));
    device.stream(Lane::compute).copy_in({0, 0, 4096}, host.data());
    CudaMatmulSpec spec;
    spec.m = kM, spec.n = kN, spec.k = kK;
    spec.trans_b = true;
    spec.type = type;
    spec.bias = true;
    spec.activation = CudaMatmulSpec::Activation::gelu;
    CudaMatmul::Operands at;
    at.a = device.address({0, 0, 1});
    at.b = device.address({0, 1024, 1});
    at.bias = device.address({0, 2048, 1});
    at.d = device.address({0, 3072, 1});
    const CudaMatmul product(device, spec, at);
    product.run(as_cuda(device.stream(Lane::compute)).handle());
    device.stream(Lane::compute).copy_out(host.data(), {0, 0, 4096});
    device.stream(Lane::compute).synchronize();
    for (int64_t i = 0; i < kM; ++i)
      for (int64_t j = 0; j < kN; ++j) {
        double x = value(j + 11);
        for (int64_t p = 0; p < kK; ++p) x += value(i * kK + p) * value(j * kK + p + 5);
        const double expected = 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
        EXPECT_NEAR(sim::load_number(host.data() + 3072, i * kN + j, type), expected, type == cuda::kR32F ? 1e-6 : 4e-3)
            << type << " " << i << " " << j;
      }
  }
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

TEST(CudaSimMatmul, HalfNumbersRoundToNearestEven) {
  for (int h = 0; h < 0x7c00; ++h) ASSERT_EQ(sim::to_half(sim::from_half(static_cast<uint16_t>(h))), h);
  EXPECT_EQ(sim::to_half(2049.0f), sim::to_half(2048.0f));
  EXPECT_EQ(sim::to_half(2051.0f), sim::to_half(2052.0f));
  EXPECT_EQ(sim::to_half(-65520.0f), 0xfc00);
}

TEST(CudaSimMeasure, RatesOfEveryTypeAndOverlap) {
  const cuda::Api api = sim::simulator_api();
  const CudaBackend backend(&api);
  const CudaMeasurements m = measure_cuda(backend, {}, 64);
  ASSERT_EQ(m.rates.size(), 5u);
  for (const CudaRate& r : m.rates) {
    EXPECT_EQ(r.failure, "") << r.type;
    EXPECT_GT(r.flops, 0) << r.type;
  }
  // 8.0: two multiprocessors at 1 MHz, 1024 multiply-adds per clock in 16 bits.
  EXPECT_DOUBLE_EQ(m.rates[3].peak, 2.0 * 1024 * 2 * 1e6);
  EXPECT_GT(m.overlap.both, 0);
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

// Each thing that is judged, at both sides of its limit.
TEST(CudaSimMeasure, WhatIsJudged) {
  const auto failures_of = [](double f32, double f32_peak, CudaRate rate) {
    CudaMeasurements m;
    m.rates = {{"f32", f32, f32_peak, ""}, std::move(rate)};
    m.overlap = {1, 1, 1};
    return m.failures();
  };
  const auto expect_one = [](const std::vector<std::string>& failures, const char* part) {
    ASSERT_EQ(failures.size(), 1u) << part;
    expect_text(failures[0], {part});
  };
  // Peaks of 10 and 20: of a GeForce card.
  EXPECT_TRUE(failures_of(8, 10, {"f16", 12.1, 20, ""}).empty());
  expect_one(failures_of(8, 10, {"f16", 11.9, 20, ""}), "products in f16 are 1.49 times as fast as in f32");
  EXPECT_TRUE(failures_of(8, 10, {"tf32", 8, 10, ""}).empty()) << "speed does not show it";
  // The share of the peak, where the ratio is fine, and for types without tensor cores.
  EXPECT_TRUE(failures_of(8, 10, {"bf16", 41, 160, ""}).empty());
  expect_one(failures_of(8, 10, {"bf16", 39, 160, ""}),
             "products in bf16 reach 24 % of the card's peak, expected 25 %");
  expect_one(failures_of(8, 10, {"tf32", 2.4, 10, ""}), "products in tf32 reach 24 %");
  expect_one(failures_of(2.4, 10, {"bf16", 80, 160, ""}), "products in f32 reach 24 %");
  expect_one(failures_of(8, 10, {"f64", 0.1, 5, ""}), "products in f64 reach 2 %");
  // A type without a unit, and one that should have worked.
  EXPECT_TRUE(failures_of(8, 10, {"bf16", 0, 0, "not supported"}).empty());
  expect_one(failures_of(8, 10, {"bf16", 0, 160, "not supported"}), "products in bf16: not supported");
}

}  // namespace
}  // namespace lathe
