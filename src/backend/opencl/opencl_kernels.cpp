// Every node that backend/kernels has a text for, bound on an OpenCL device.
#include "backend/opencl/opencl_kernels.h"

#include "backend/kernels/node_calls.h"
#include "backend/opencl/opencl_device.h"

namespace lathe {
namespace {

struct OpenClBinder {
  static constexpr std::string_view name = "opencl";

  template <size_t kind>
  static std::unique_ptr<Kernel> bind(Device& d, const Site& s, const KernelArgs& args) {
    auto& device = static_cast<OpenClDevice&>(d);
    return device.bind(node_kinds()[kind].calls(s, device.tiles()), args);
  }
};

}  // namespace

const KernelTable& opencl_kernels() {
  static const KernelTable table(node_candidates<OpenClBinder>());
  return table;
}

}  // namespace lathe
