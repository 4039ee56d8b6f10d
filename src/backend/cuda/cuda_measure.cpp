#include "backend/cuda/cuda_measure.h"

#include <algorithm>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_info.h"
#include "backend/cuda/cuda_matmul.h"
#include "base/stopwatch.h"

namespace lathe {
namespace {

constexpr int kRepeats = 5;

struct Arena {
  Buffer a, b, d, workspace;
  int64_t bytes = 0;
};

// Room for products of f64, which all smaller types use too.
Arena arena_for(int64_t n, int64_t workspace) {
  const int64_t matrix = (8 * n * n + 255) / 256 * 256;
  Arena m;
  m.a = {0, 0, matrix};
  m.b = {0, matrix, matrix};
  m.d = {0, 2 * matrix, matrix};
  m.workspace = {0, 3 * matrix, workspace};
  m.bytes = 3 * matrix + workspace;
  return m;
}

double seconds_per_product(CudaDevice& device, const CudaMatmul& product) {
  const cuda::Api& api = device.api();
  CudaStream& stream = as_cuda(device.stream(Lane::compute));
  const CudaEvent begin(device, cuda::kEventDefault), end(device, cuda::kEventDefault);
  product.run(stream.handle());  // loads the code
  LATHE_CUDA(api, cuEventRecord(begin.handle(), stream.handle()));
  for (int i = 0; i < kRepeats; ++i) product.run(stream.handle());
  LATHE_CUDA(api, cuEventRecord(end.handle(), stream.handle()));
  LATHE_CUDA(api, cuEventSynchronize(end.handle()));
  float milliseconds = 0;
  LATHE_CUDA(api, cuEventElapsedTime(&milliseconds, begin.handle(), end.handle()));
  return 1e-3 * static_cast<double>(milliseconds) / kRepeats;
}

}  // namespace

double CudaOverlap::share() const {
  const double shorter = std::min(copy, compute);
  return shorter > 0 ? std::clamp((copy + compute - both) / shorter, 0.0, 1.0) : 0;
}

CudaMeasurements measure_cuda(const CudaBackend& backend, const DeviceOptions& options, int64_t n) {
  CudaMeasurements out;
  const std::unique_ptr<Device> opened = backend.open(options);
  CudaDevice& device = as_cuda(*opened);
  const CudaInfo info = cuda_devices(device.api())[static_cast<size_t>(options.index)];
  const Arena m = arena_for(n, device.target().library_workspace);
  const int64_t segments[] = {m.bytes, m.a.bytes};
  device.allocate(segments);
  CudaMatmul::Operands at;
  at.a = device.address(m.a);
  at.b = device.address(m.b);
  at.d = device.address(m.d);
  at.workspace = device.address(m.workspace);
  at.workspace_bytes = m.workspace.bytes;

  struct Row {
    const char* type;
    int data;
    bool tf32;
    CudaMath math;
  };
  constexpr Row kRows[] = {{"f32", cuda::kR32F, false, CudaMath::f32},
                           {"tf32", cuda::kR32F, true, CudaMath::tf32},
                           {"bf16", cuda::kR16BF, false, CudaMath::f16},
                           {"f16", cuda::kR16F, false, CudaMath::f16},
                           {"f64", cuda::kR64F, false, CudaMath::f64}};
  CudaMatmulSpec spec;
  spec.m = spec.n = spec.k = n;
  for (const Row& row : kRows) {
    CudaRate rate;
    rate.type = row.type;
    rate.peak = peak_flops(info, row.math);
    spec.type = row.data;
    spec.tf32 = row.tf32;
    try {
      const double s = seconds_per_product(device, CudaMatmul(device, spec, at));
      rate.flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / s;
    } catch (const DeviceError& e) {
      rate.failure = e.what();
    }
    out.rates.push_back(std::move(rate));
  }

  // One product after the other on the compute lane, one copy on the other lane, into memory of its own.
  spec.type = cuda::kR32F;
  spec.tf32 = false;
  const CudaMatmul product(device, spec, at);
  const Buffer target{1, 0, m.a.bytes};
  const std::byte* host = device.allocate_staging(target.bytes);
  Stream &compute = device.stream(Lane::compute), &transfer = device.stream(Lane::transfer);
  const auto timed = [&](bool copies, bool products) {
    const Stopwatch start;
    if (products)
      for (int i = 0; i < kRepeats; ++i) product.run(as_cuda(compute).handle());
    if (copies) transfer.copy_in(target, host);
    compute.synchronize();
    transfer.synchronize();
    return start.seconds();
  };
  timed(true, true);
  out.overlap.copy = timed(true, false);
  out.overlap.compute = timed(false, true);
  out.overlap.both = timed(true, true);
  return out;
}

}  // namespace lathe
