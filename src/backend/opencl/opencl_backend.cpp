#include "backend/opencl/opencl_backend.h"

#include <cstdlib>

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
      t.dtypes.assign(std::begin(kAllDTypes), std::end(kAllDTypes));
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
           static_cast<int64_t>(device_number<cl_ulong>(id.device, CL_DEVICE_GLOBAL_MEM_SIZE)),
           fmt::format("{} ({})", device_text(id.device, CL_DRIVER_VERSION),
                       device_text(id.device, CL_DEVICE_VERSION)),
           !is_cpu(id.device), opencl_unusable(id.device)});
    return list;
  }

  std::string unavailable_reason() const override {
    std::string reason;
    opencl_devices(&reason);
    return reason;
  }

  std::unique_ptr<Device> open(const DeviceOptions& options) const override {
    return std::make_unique<OpenClDevice>(opencl_device_options(options.index), target(options));
  }
};

// PoCL keeps a cache of its own which is as fast, and asking it for binaries compiles every kernel a second time
// (measured with 3.1: 10 kernels, 0.8 s).
std::string cache_folder(const OpenClDeviceId& id) {
  const std::string platform = platform_text(id.platform, CL_PLATFORM_NAME);
  return platform == "Portable Computing Language" ? "" : BinaryCache::default_folder();
}

LaunchStyle style_of(const OpenClDeviceId& id) {
  if (const char* form = std::getenv("LATHE_OPENCL_FORM")) {
    const std::string_view name(form);
    LATHE_USER_CHECK(name == "narrow" || name == "wide", "LATHE_OPENCL_FORM: expected narrow or wide, got {}", name);
    return name == "narrow" ? LaunchStyle::narrow : LaunchStyle::wide;
  }
  return is_cpu(id.device) ? LaunchStyle::narrow : LaunchStyle::wide;
}

}  // namespace

OpenClDeviceOptions opencl_device_options(int index) {
  OpenClDeviceOptions o;
  o.index = index;
  const auto all = opencl_devices();
  if (index < 0 || index >= static_cast<int>(all.size())) return o;  // opening it says what is wrong
  const OpenClDeviceId& id = all[static_cast<size_t>(index)];
  o.cache_folder = cache_folder(id);
  o.style = style_of(id);
  o.trace = std::getenv("LATHE_OPENCL_TRACE") != nullptr;
  // Stored sizes that do not fit (any more) are as good as none.
  const auto tiles = opencl_tile_store(index, *o.style).load();
  const OpenClLimits limits = opencl_limits(id.device);
  if (tiles && tiles->style == *o.style && check_tiles(*tiles, limits.group, limits.local_bytes).empty())
    o.tiles = tiles;
  return o;
}

TileStore opencl_tile_store(int index, LaunchStyle style) {
  const OpenClDeviceId id = opencl_devices().at(static_cast<size_t>(index));
  return {BinaryCache::default_folder(), device_identity(id.device), style};
}

const Backend& opencl_backend() {
  static const OpenClBackend backend;
  return backend;
}

}  // namespace lathe
