#include "backend/cpu/cpu_backend.h"

#include <fstream>

#include "backend/cpu/families.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/memory_limit.h"
#include "backend/host_device.h"

namespace lathe {
namespace cpu {

using Rows = std::vector<KernelTable::Row>;
// Each in a file of that name.
Rows arg_max_rows(), avg_pool_rows(), batch_norm_rows(), collective_rows(), concat_rows(), conv2d_rows(), gather_rows(),
    iota_rows(), layer_norm_rows(), loop_rows(), matmul_rows(), max_pool_rows(), pad_rows(), random_uniform_rows(),
    slice_rows(), softmax_rows(), sort_rows(), transpose_rows();

Rows family_rows() {
  Rows rows;
  for (auto* family : {loop_rows, matmul_rows, conv2d_rows, transpose_rows, slice_rows, pad_rows, concat_rows,
                       gather_rows, iota_rows, arg_max_rows, sort_rows, random_uniform_rows, max_pool_rows,
                       avg_pool_rows, softmax_rows, layer_norm_rows, batch_norm_rows, collective_rows})
    for (const KernelTable::Row& row : family()) rows.push_back(row);
  return rows;
}

}  // namespace cpu

namespace {

std::vector<KernelTable::Row> all_rows() {
  std::vector<KernelTable::Row> rows = cpu::family_rows();
  for (const KernelTable::Row& row : cpu::widened_rows()) rows.push_back(row);
  return rows;
}

std::string model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const size_t colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "processor";
}

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  const KernelTable& kernels() const override { return table_; }

  Target target(const DeviceOptions& options) const override {
    Target t;
    t.name = "cpu";
    t.native_ops = table_.ops();
    t.dtypes.assign(std::begin(kAllDTypes), std::end(kAllDTypes));
    t.memory = t.largest_allocation = cpu::usable_memory();
    t.threads = options.threads > 0 ? options.threads : available_threads();
    return t;
  }

  std::vector<DeviceInfo> devices() const override {
    return {{"cpu", fmt::format("{}, {}, {} threads", model_name(), cpu::active_isa(), available_threads()),
             cpu::usable_memory(), "built in"}};
  }

  std::unique_ptr<Device> open(const DeviceOptions& options) const override {
    LATHE_USER_CHECK(options.index == 0, "device: there is no cpu:{}; the cpu backend is one device", options.index);
    cpu::force_isa_from_environment();
    return std::make_unique<HostDevice>(target(options), options.threads, options.group);
  }

 private:
  KernelTable table_{all_rows()};
};

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace lathe
