#include "backend/opencl/opencl_backend.h"

#include <cstdlib>

#include "backend/opencl/opencl_device.h"
#include "backend/opencl/opencl_kernels.h"
#include "base/error.h"

namespace lathe {
namespace {

class OpenClBackend final : public Backend {
 public:
  std::string_view name() const override { return "opencl"; }
  const KernelTable& kernels() const override { return opencl_kernels(); }

  Target target(const DeviceOptions& options) const override {
    const auto all = opencl_devices();
    Target t;
    if (options.index >= 0 && options.index < static_cast<int>(all.size())) {
      t = opencl_target(all[static_cast<size_t>(options.index)].device);
    } else {
      t.name = "opencl";
      t.alignment = 128;
      t.host_memory = false;
    }
    t.native_ops = kernels().ops();
    return t;
  }

  std::vector<DeviceInfo> devices() const override {
    std::vector<DeviceInfo> list;
    for (const OpenClDeviceId& id : opencl_devices())
      list.push_back(
          {fmt::format("opencl:{}", list.size()),
           fmt::format("{} ({})", device_text(id.device, CL_DEVICE_NAME), platform_text(id.platform, CL_PLATFORM_NAME)),
           static_cast<int64_t>(device_number<cl_ulong>(id.device, CL_DEVICE_GLOBAL_MEM_SIZE))});
    return list;
  }

  std::string unavailable_reason() const override {
    std::string reason;
    opencl_devices(&reason);
    return reason;
  }

  std::unique_ptr<Device> open(const DeviceOptions& options) const override {
    OpenClDeviceOptions o;
    o.index = options.index;
    o.cache_folder = cache_folder(options.index);
    if (const char* form = std::getenv("LATHE_OPENCL_FORM")) {
      const std::string_view name(form);
      LATHE_USER_CHECK(name == "narrow" || name == "wide", "LATHE_OPENCL_FORM: expected narrow or wide, got {}", name);
      o.style = name == "narrow" ? LaunchStyle::narrow : LaunchStyle::wide;
    }
    return std::make_unique<OpenClDevice>(o, target(options));
  }

 private:
  // PoCL keeps a cache of its own which is as fast, and asking it for binaries compiles every kernel a second time
  // (measured with 3.1: 10 kernels, 0.8 s).
  static std::string cache_folder(int index) {
    const auto all = opencl_devices();
    if (index < 0 || index >= static_cast<int>(all.size())) return "";
    const std::string platform = platform_text(all[static_cast<size_t>(index)].platform, CL_PLATFORM_NAME);
    return platform == "Portable Computing Language" ? "" : BinaryCache::default_folder();
  }
};

}  // namespace

const Backend& opencl_backend() {
  static const OpenClBackend backend;
  return backend;
}

}  // namespace lathe
