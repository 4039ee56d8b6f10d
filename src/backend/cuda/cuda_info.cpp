#include "backend/cuda/cuda_info.h"

#include <algorithm>

#include "backend/cuda/cuda_matmul.h"
#include "base/error.h"

namespace lathe {
namespace {

// Vendor libraries may use this much per launch: what NVIDIA recommends for Hopper and later, and for the others.
constexpr int64_t kWorkspaceHopper = int64_t{32} << 20, kWorkspace = int64_t{8} << 20;
constexpr int kHopper = 90;

int attribute(const cuda::Api& api, int what, cuda::DeviceId id) {
  int value = 0;
  LATHE_CUDA(api, cuDeviceGetAttribute(&value, what, id));
  return value;
}

}  // namespace

std::string CudaInfo::architecture() const { return fmt::format("sm_{}{}", major, minor); }

bool CudaInfo::usable() const { return major * 10 + minor >= kOldestCapability; }

std::string CudaInfo::too_old() const {
  return fmt::format("compute capability {}.{}; {}.{} or newer is needed", major, minor, kOldestCapability / 10,
                     kOldestCapability % 10);
}

void set_capability(Target& t, int capability) {
  t.capability = capability;
  t.library_workspace = capability >= kHopper ? kWorkspaceHopper : kWorkspace;
}

std::string cuda_driver_text(const cuda::Api& api) {
  int version = 0;
  LATHE_CUDA(api, cuDriverGetVersion(&version));
  return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
}

std::vector<CudaInfo> cuda_devices(const cuda::Api& api, std::string* reason) {
  std::string ignored;
  std::string& why = reason ? *reason : ignored;
  if (!api.driver_missing.empty()) {
    why = api.driver_missing;
    return {};
  }
  int count = 0;
  if (const int status = api.cuInit(0); status != cuda::kSuccess) {
    const char* name = nullptr;
    api.cuGetErrorName(status, &name);
    why = fmt::format("the NVIDIA driver does not start: {}; nvidia-smi may say more", name ? name : "unknown error");
    return {};
  }
  LATHE_CUDA(api, cuDeviceGetCount(&count));
  if (count == 0) {
    why = "the NVIDIA driver finds no card (or CUDA_VISIBLE_DEVICES hides it)";
    return {};
  }
  if (!api.nvrtc_missing.empty()) {
    why = api.nvrtc_missing;
    return {};
  }
  std::vector<CudaInfo> all;
  for (int i = 0; i < count; ++i) {
    CudaInfo d;
    LATHE_CUDA(api, cuDeviceGet(&d.id, i));
    char name[256] = "";
    LATHE_CUDA(api, cuDeviceGetName(name, sizeof name, d.id));
    d.name = name;
    size_t bytes = 0;
    LATHE_CUDA(api, cuDeviceTotalMem_v2(&bytes, d.id));
    d.memory = static_cast<int64_t>(bytes);
    d.major = attribute(api, cuda::kComputeMajor, d.id);
    d.minor = attribute(api, cuda::kComputeMinor, d.id);
    d.multiprocessors = attribute(api, cuda::kMultiprocessors, d.id);
    d.largest_grid = {attribute(api, cuda::kMaxGridX, d.id), attribute(api, cuda::kMaxGridY, d.id),
                      attribute(api, cuda::kMaxGridZ, d.id)};
    d.clock_khz = attribute(api, cuda::kClockRate, d.id);
    d.memory_clock_khz = attribute(api, cuda::kMemoryClockRate, d.id);
    d.memory_bus_bits = attribute(api, cuda::kMemoryBusWidth, d.id);
    all.push_back(std::move(d));
  }
  if (std::ranges::all_of(all, [](const CudaInfo& d) { return !d.usable(); })) {
    why = fmt::format("{} has {}", all[0].name, all[0].too_old());
    return {};
  }
  return all;
}

Target cuda_target(const cuda::Api& api, const CudaInfo* info) {
  Target t;
  t.name = "cuda";
  t.dtypes.assign(std::begin(kAllDTypes), std::end(kAllDTypes));
  t.alignment = 256;
  t.host_memory = false;
  set_capability(t, info ? info->major * 10 + info->minor : 0);
  t.gradient_epilogues = api.cublaslt_missing.empty() || !info ? kGeluColumns : 0;
  if (!info) return t;
  t.memory = t.largest_allocation = info->memory;
  t.threads = info->multiprocessors;
  if (!api.cublaslt_missing.empty()) t.missing.push_back({"cublaslt", api.cublaslt_missing});
  if (!api.cudnn_missing.empty()) t.missing.push_back({"cudnn", api.cudnn_missing});
  return t;
}

double peak_flops(const CudaInfo& d, CudaMath math) {
  // Multiply-adds per clock and multiprocessor, dense, from the architecture white papers.
  struct Row {
    int capability;
    double f32, tf32, f16, f64;
  };
  static constexpr Row kRows[] = {
      {75, 64, 0, 512, 2},        {80, 64, 512, 1024, 64},    {86, 128, 256, 512, 2},  {89, 128, 256, 512, 2},
      {90, 128, 1024, 2048, 128}, {100, 128, 2048, 4096, 64}, {120, 128, 256, 512, 2},
  };
  const Row* row = &kRows[0];
  for (const Row& r : kRows)
    if (d.major * 10 + d.minor >= r.capability) row = &r;
  const bool geforce = d.name.find("GeForce") != std::string::npos;
  // Those without ray tracing (GTX 16, MX) are Turing too, and have pairs of f16 units in place of tensor cores.
  const bool tensor_cores = !geforce || d.name.find("RTX") != std::string::npos;
  const double sums_in_f32 = geforce ? 0.5 : 1;  // what is left of the tensor cores' rate then
  const double rate = math == CudaMath::f32    ? row->f32
                      : math == CudaMath::tf32 ? row->tf32 * sums_in_f32
                      : math == CudaMath::f64  ? row->f64
                      : tensor_cores           ? row->f16 * sums_in_f32
                                               : 2 * row->f32;
  return 2e3 * rate * d.multiprocessors * d.clock_khz;
}

}  // namespace lathe
