#include "backend/ref/ref_backend.h"

#include <unistd.h>

#include <algorithm>

#include "backend/host_device.h"
#include "base/checked.h"
#include "ops/fused.h"
#include "ops/registry.h"

namespace lathe {
namespace {

struct RefArg {
  RefTensor tensor;           // in the workspace
  std::byte* data = nullptr;  // in the arena
};

void load(const RefArg& a) {
  dispatch(a.tensor.type.dtype, [&](auto zero) {
    const auto* x = reinterpret_cast<const decltype(zero)*>(a.data);
    for (int64_t i = 0; i < a.tensor.numel(); ++i) a.tensor[i] = static_cast<double>(x[i]);
  });
}

void store(const RefArg& a) {
  const DType t = a.tensor.type.dtype;
  dispatch(t, [&](auto zero) {
    auto* y = reinterpret_cast<decltype(zero)*>(a.data);
    for (int64_t i = 0; i < a.tensor.numel(); ++i) y[i] = static_cast<decltype(zero)>(round_to(t, a.tensor[i]));
  });
}

// Outputs are stored after all inputs were loaded, so any output may lie over any input.
class RefKernel final : public Kernel {
 public:
  RefKernel(HostDevice& device, const Site& site, const KernelArgs& args)
      : op_(site.node.op), params_(site.node.params) {
    auto* next = reinterpret_cast<double*>(device.address(args.workspace));
    const auto take = [&](const Types& types, const std::vector<Buffer>& buffers, std::vector<RefArg>& list,
                          std::vector<RefTensor>& tensors) {
      for (size_t i = 0; i < types.size(); ++i) {
        list.push_back({{types[i], next}, device.address(buffers[i])});
        tensors.push_back(list.back().tensor);
        next += types[i].numel();
      }
    };
    take(site.in, args.in, ins_, in_tensors_);
    take(site.out, args.out, outs_, out_tensors_);
  }

  void run(Stream&) override {
    for (const RefArg& a : ins_) load(a);
    for (const RefArg& a : outs_) std::fill_n(a.tensor.data, a.tensor.numel(), 0.0);
    op_->reference(out_tensors_, in_tensors_, params_.get());
    for (const RefArg& a : outs_) store(a);
  }

 private:
  const OpDef* op_;
  ParamsPtr params_;
  std::vector<RefArg> ins_, outs_;
  std::vector<RefTensor> in_tensors_, out_tensors_;
};

// A body's reference keeps f64 throughout; where values of 16 bits are rounded on the way, its nodes run one by one.
std::string accepts(const Site& site) {
  if (site.node.op == &fused_op)
    for (const TensorType& t : site.node.get<FusedParams>().body->types)
      if (is_16bit(t.dtype)) return fmt::format("{} in the body", to_string(t.dtype));
  return "";
}

int64_t workspace(const Site& site) {
  int64_t numel = 0;
  for (const Types* types : {&site.in, &site.out})
    for (const TensorType& t : *types) numel = checked_add(numel, t.numel(), "ref: workspace");
  return checked_mul(numel, sizeof(double), "ref: workspace");
}

class RefBackend final : public Backend {
 public:
  std::string_view name() const override { return "ref"; }
  const KernelTable& kernels() const override {
    static const KernelTable table(ref_kernels());
    return table;
  }
  Target target(const DeviceOptions&) const override {
    Target t;
    t.name = "ref";
    t.native_ops = kernels().ops();
    t.dtypes.assign(std::begin(kAllDTypes), std::end(kAllDTypes));
    t.memory = memory();
    return t;
  }
  std::vector<DeviceInfo> devices() const override { return {{"ref", "reference loops in f64, one thread", memory()}}; }
  std::unique_ptr<Device> open(const DeviceOptions& options) const override {
    LATHE_USER_CHECK(options.index == 0, "device: there is one ref device, ref:0, got ref:{}", options.index);
    return std::make_unique<HostDevice>(target(options), 1);
  }

 private:
  static int64_t memory() { return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE); }
};

}  // namespace

std::vector<KernelTable::Row> ref_kernels() {
  std::vector<KernelTable::Row> rows;
  for (const OpDef* op : registry().all()) {
    if (!op->runs_alone()) continue;
    rows.push_back(
        {op->name(),
         {"ref", accepts, workspace, [](Device& d, const Site& s, const KernelArgs& a) -> std::unique_ptr<Kernel> {
            return std::make_unique<RefKernel>(host_device(d), s, a);
          }}});
  }
  return rows;
}

const Backend& ref_backend() {
  static const RefBackend backend;
  return backend;
}

}  // namespace lathe
