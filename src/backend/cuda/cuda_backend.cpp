#include "backend/cuda/cuda_backend.h"

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_info.h"
#include "backend/cuda/cuda_kernels.h"

namespace lathe {

const KernelTable& CudaBackend::kernels() const { return cuda_kernels(); }

Target CudaBackend::target(const DeviceOptions& options) const {
  const auto all = cuda_devices(api());
  const bool there = options.index >= 0 && options.index < static_cast<int>(all.size());
  Target t = cuda_target(api(), there ? &all[static_cast<size_t>(options.index)] : nullptr);
  t.native_ops = kernels().ops();
  return t;
}

std::vector<DeviceInfo> CudaBackend::devices() const {
  std::vector<DeviceInfo> list;
  for (const CudaInfo& d : cuda_devices(api()))
    list.push_back(
        {fmt::format("cuda:{}", list.size()),
         fmt::format("{} (compute capability {}.{}, {} multiprocessors)", d.name, d.major, d.minor, d.multiprocessors),
         d.memory, cuda_driver_text(api()), true, d.usable() ? "" : d.too_old()});
  return list;
}

std::string CudaBackend::unavailable_reason() const {
  std::string reason;
  cuda_devices(api(), &reason);
  return reason;
}

std::unique_ptr<Device> CudaBackend::open(const DeviceOptions& options) const {
  return std::make_unique<CudaDevice>(api(), options.index, target(options), BinaryCache::default_folder());
}

const Backend& cuda_backend() {
  static const CudaBackend backend;
  return backend;
}

}  // namespace lathe
