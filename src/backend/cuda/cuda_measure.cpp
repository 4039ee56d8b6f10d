#include "backend/cuda/cuda_measure.h"

#include <algorithm>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_info.h"
#include "backend/cuda/cuda_matmul.h"

namespace lathe {
namespace {

constexpr int kRepeats = 5;

// Half of the products' speed-up on cards whose tensor cores are twice as fast as f32 may be lost to a small clock or
// a small matrix; all of it is lost when they are not in use.
constexpr double kLeastSpeedup = 1.5;
// Where tensor cores are less than this much faster than f32, as for TF32 on GeForce cards, speed does not tell whether
// they are in use.
constexpr double kJudgedRatio = 1.9;
// Of the peak, for every type: large products reach more than half of it, 40 % on cards that their power limit slows.
constexpr double kLeastShare = 0.25;
constexpr double kLeastOverlap = 0.25;

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

double seconds_between(CudaDevice& device, const CudaEvent& begin, const CudaEvent& end) {
  LATHE_CUDA(device.api(), cuEventSynchronize(end.handle()));
  float milliseconds = 0;
  LATHE_CUDA(device.api(), cuEventElapsedTime(&milliseconds, begin.handle(), end.handle()));
  return 1e-3 * static_cast<double>(milliseconds);
}

double seconds_per_product(CudaDevice& device, const CudaMatmul& product) {
  CudaStream& stream = as_cuda(device.stream(Lane::compute));
  CudaEvent begin(device, cuda::kEventDefault), end(device, cuda::kEventDefault);
  product.run(stream.handle());  // loads the code
  stream.record(begin);
  for (int i = 0; i < kRepeats; ++i) product.run(stream.handle());
  stream.record(end);
  return seconds_between(device, begin, end) / kRepeats;
}

// One product after the other on the compute lane, one copy on the other lane, into memory of its own; both begin at
// the same point. Until the later one ends.
double seconds_of(CudaDevice& device, const CudaMatmul* product, const Buffer* target, const std::byte* host) {
  Stream &compute = device.stream(Lane::compute), &transfer = device.stream(Lane::transfer);
  CudaEvent begin(device, cuda::kEventDefault), computed(device, cuda::kEventDefault),
      copied(device, cuda::kEventDefault);
  compute.record(begin);
  transfer.wait(begin);
  if (target) transfer.copy_in(*target, host);
  transfer.record(copied);
  for (int i = 0; product && i < kRepeats; ++i) product->run(as_cuda(compute).handle());
  compute.record(computed);
  return std::max(seconds_between(device, begin, computed), seconds_between(device, begin, copied));
}

bool has_tensor_cores(const std::string& type) { return type != "f32" && type != "f64"; }

}  // namespace

double CudaOverlap::share() const {
  const double shorter = std::min(copy, compute);
  return shorter > 0 ? std::clamp((copy + compute - both) / shorter, 0.0, 1.0) : 0;
}

CudaRate CudaMeasurements::rate_of(const std::string& type) const {
  const auto at = std::ranges::find(rates, type, &CudaRate::type);
  return at == rates.end() ? CudaRate{} : *at;
}

std::string CudaMeasurements::not_judged(const CudaRate& r) const {
  if (r.peak <= 0) return "not judged: the card has no unit for it";
  if (has_tensor_cores(r.type) && r.peak < kJudgedRatio * rate_of("f32").peak)
    return "use of tensor cores not judged: they are hardly faster than f32 on this card";
  return "";
}

std::vector<std::string> CudaMeasurements::failures() const {
  std::vector<std::string> out;
  for (const CudaRate& r : rates)
    if (!r.failure.empty() && r.peak > 0) out.push_back(fmt::format("products in {}: {}", r.type, r.failure));
  const CudaRate f32 = rate_of("f32");
  for (const CudaRate& r : rates) {
    if (!r.failure.empty() || r.peak <= 0) continue;
    if (r.flops < kLeastShare * r.peak)
      out.push_back(fmt::format(
          "products in {} reach {:.0f} % of the card's peak, expected {:.0f} % or more; other work on the card, a low "
          "clock or matrices that are too small (--product) have this effect too",
          r.type, 100 * r.flops / r.peak, 100 * kLeastShare));
    if (!has_tensor_cores(r.type) || !not_judged(r).empty() || r.flops > kLeastSpeedup * f32.flops) continue;
    out.push_back(fmt::format(
        "products in {} are {:.2f} times as fast as in f32; the card's tensor cores are {:.0f} times as fast: they are "
        "not in use",
        r.type, f32.flops > 0 ? r.flops / f32.flops : 0, r.peak / f32.peak));
  }
  if (overlap.share() < kLeastOverlap)
    out.push_back(fmt::format(
        "a copy from the host does not run under computation: {:.2f} ms and {:.2f} ms alone, {:.2f} ms together",
        1e3 * overlap.copy, 1e3 * overlap.compute, 1e3 * overlap.both));
  return out;
}

CudaMeasurements measure_cuda(const Backend& backend, const DeviceOptions& options, int64_t n) {
  LATHE_CHECK(backend.name() == "cuda", "{}", backend.name());
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
    if (row.data == cuda::kR16BF && info.major < 8) rate.peak = 0;
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

  spec.type = cuda::kR32F;
  spec.tf32 = false;
  const CudaMatmul product(device, spec, at);
  const Buffer target{1, 0, m.a.bytes};
  const std::byte* host = device.allocate_staging(target.bytes);
  seconds_of(device, &product, &target, host);
  out.overlap.copy = seconds_of(device, nullptr, &target, host);
  out.overlap.compute = seconds_of(device, &product, nullptr, host);
  out.overlap.both = seconds_of(device, &product, &target, host);
  return out;
}

}  // namespace lathe
