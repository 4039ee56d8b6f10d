// The cuda backend: NVIDIA cards through the driver, cuBLASLt, cuDNN and NVRTC, all opened at run time.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/cuda_api.h"

namespace lathe {

class CudaBackend final : public Backend {
 public:
  // `api` null: the libraries of this machine, opened at first use. It must outlive the backend and its devices.
  explicit CudaBackend(const cuda::Api* api = nullptr) : api_(api) {}

  std::string_view name() const override { return "cuda"; }
  const KernelTable& kernels() const override;
  Target target(const DeviceOptions&) const override;
  std::vector<DeviceInfo> devices() const override;
  std::string unavailable_reason() const override;
  std::unique_ptr<Device> open(const DeviceOptions&) const override;

 private:
  const cuda::Api& api() const { return api_ ? *api_ : cuda::loaded_api(); }
  const cuda::Api* api_;
};

const Backend& cuda_backend();

}  // namespace lathe
