#include "backend/opencl/opencl_backend.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "backend/opencl/opencl_kernels.h"
#include "backend/opencl/pocl_folder.h"
#include "base/error.h"
#include "base/warning.h"

namespace lathe {
namespace {

std::string abort_text;
struct sigaction before_abort_text = {};

void speak_on_abort(int signal, siginfo_t* info, void* context) {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, abort_text.data(), abort_text.size());
  // PoCL's compiler has put a handler there that removes its temporary files. After it, abort() ends the process.
  if (before_abort_text.sa_flags & SA_SIGINFO)
    before_abort_text.sa_sigaction(signal, info, context);
  else if (before_abort_text.sa_handler != SIG_DFL && before_abort_text.sa_handler != SIG_IGN)
    before_abort_text.sa_handler(signal);
}

// PoCL aborts the process when a file of its cache is damaged, so that no error can be returned. That cache is ours
// (PoclFolder) unless the user says otherwise.
void explain_aborts() {
  if (!abort_text.empty()) return;
  const auto variable = [](const char* name, const char* behind) {
    const char* v = std::getenv(name);
    return v && *v ? std::string(v) + behind : "";
  };
  std::string folder = variable("POCL_CACHE_DIR", "");
  if (folder.empty()) folder = variable("XDG_CACHE_HOME", "/pocl/kcache");
  if (folder.empty()) folder = variable("HOME", "/.cache/pocl/kcache");
  abort_text = fmt::format(
      "lathe: error: the program was ended from within, most likely by the OpenCL driver (PoCL); if its lines above "
      "name "
      "files of its cache, these are damaged: delete {}\n",
      folder);
  struct sigaction ours = {};
  ours.sa_sigaction = speak_on_abort;
  ours.sa_flags = SA_SIGINFO;
  sigaction(SIGABRT, &ours, &before_abort_text);
}

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
           fmt::format("{} ({})", device_text(id.device, CL_DRIVER_VERSION), device_text(id.device, CL_DEVICE_VERSION)),
           !is_cpu(id.device), opencl_unusable(id.device)});
    return list;
  }

  std::string unavailable_reason() const override {
    std::string reason;
    opencl_devices(&reason);
    return reason;
  }

  std::unique_ptr<Device> open(const DeviceOptions& options) const override {
    auto device = std::make_unique<OpenClDevice>(opencl_device_options(options.index), target(options));
    if (PoclFolder::of_process().path().empty() && is_pocl(opencl_devices().at(static_cast<size_t>(options.index))))
      explain_aborts();
    return device;
  }
};

}  // namespace

OpenClDeviceOptions opencl_device_options(int index) {
  OpenClDeviceOptions o;
  o.index = index;
  const auto all = opencl_devices();
  if (index < 0 || index >= static_cast<int>(all.size())) return o;  // opening it says what is wrong
  const OpenClDeviceId& id = all[static_cast<size_t>(index)];
  o.pocl_files = is_pocl(id);
  if (!o.pocl_files || !PoclFolder::of_process().path().empty()) o.cache_folder = BinaryCache::default_folder();
  o.style = usual_style(id.device);
  if (const char* trace = std::getenv("LATHE_OPENCL_TRACE")) {
    o.trace = true;
    if (std::string_view(trace) != "1") o.trace_file = trace;
  }
  const TileStore store = opencl_tile_store(index, *o.style);
  const auto tiles = store.load();
  const OpenClLimits limits = opencl_limits(id.device);
  if (tiles && tiles->style == *o.style && check_tiles(*tiles, limits.group, limits.local_bytes).empty())
    o.tiles = tiles;
  else if (static std::atomic<bool> said{false}; store.exists() && !said.exchange(true))
    warn(fmt::format(
        "{} holds no tile sizes for this device: the usual ones are taken; `lathe bench tune-device` writes "
        "it again",
        store.path()));
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
