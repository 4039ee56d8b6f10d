// The 16-bit floats on kernels of f32: inputs are widened into the workspace, the kernel for f32 runs there, and what
// it gives is rounded into the outputs. So sums and products are those of f32, and one rounding ends an op, as
// base/dtype.h demands. For ops whose arithmetic outweighs two more passes over their values; elementwise loops and
// copies take 16-bit types themselves.
#include <algorithm>

#include "backend/cpu/families.h"
#include "backend/cpu/gemm/epilogue.h"
#include "backend/cpu/host_kernel.h"
#include "base/checked.h"

namespace lathe::cpu {

std::string accepts_wide(const Site& site) {
  for (const Types* types : {&site.in, &site.out})
    for (const TensorType& t : *types)
      if (is_16bit(t.dtype)) return fmt::format("takes no {}", to_string(t.dtype));
  return "";
}

namespace {

constexpr int64_t kWidenBlock = 1 << 15;

Types widened(const Types& types) {
  Types out = types;
  for (TensorType& t : out) t.dtype = compute_type(t.dtype);
  return out;
}

const KernelTable& wide_kernels() {
  static const KernelTable table = [] {
    std::vector<KernelTable::Row> rows = family_rows();
    std::erase_if(rows, [](const KernelTable::Row& row) { return !row.widened; });
    return KernelTable(std::move(rows));
  }();
  return table;
}

// The first kernel that takes the site in f32.
const Candidate* find_wide(const Site& wide, std::string* reasons) {
  for (const KernelTable::Row& row : wide_kernels().candidates(wide.node.op->name())) {
    const std::string reason = row.candidate.accepts(wide);
    if (reason.empty()) return &row.candidate;
    *reasons += fmt::format("{}{} in f32: {}", reasons->empty() ? "" : "; ", row.candidate.name, reason);
  }
  if (reasons->empty()) *reasons = "no kernel in f32";
  return nullptr;
}

Site wide_site(const Site& site) { return {site.node, widened(site.in), widened(site.out), site.target}; }

std::string accepts(const Site& site) {
  if (accepts_wide(site).empty()) return "for the 16-bit types only";
  std::string reasons;
  return find_wide(wide_site(site), &reasons) ? "" : reasons;
}

int64_t wide_bytes(const TensorType& t) {
  return is_16bit(t.dtype) ? round_up(checked_mul(t.numel(), 4, "cpu_widened: workspace"), 64) : 0;
}

// The kernel's own workspace first, then the widened values.
int64_t kernel_bytes(const Site& wide) {
  std::string reasons;
  const Candidate* c = find_wide(wide, &reasons);
  return c->workspace ? round_up(c->workspace(wide), 64) : 0;
}

int64_t workspace(const Site& site) {
  int64_t bytes = kernel_bytes(wide_site(site));
  for (const Types* types : {&site.in, &site.out})
    for (const TensorType& t : *types) bytes = checked_add(bytes, wide_bytes(t), "cpu_widened: workspace");
  return bytes;
}

// A tensor of 16 bits and its place in f32.
struct Twin {
  DType dtype;
  int64_t numel;
  std::byte* narrow;
  std::byte* wide;
};

class WidenedKernel final : public Kernel {
 public:
  WidenedKernel(Device& device, const Site& site, const KernelArgs& args) : pool_(host_device(device).pool()) {
    const HostDevice& host = host_device(device);
    const Site wide = wide_site(site);
    KernelArgs inner = args;
    inner.workspace.bytes = kernel_bytes(wide);
    int64_t at = inner.workspace.bytes;
    const auto take = [&](const Types& types, std::vector<Buffer>& buffers, std::vector<Twin>& twins) {
      for (size_t i = 0; i < types.size(); ++i) {
        if (!is_16bit(types[i].dtype)) continue;
        const Buffer place{args.workspace.segment, args.workspace.offset + at, types[i].numel() * 4};
        twins.push_back({types[i].dtype, types[i].numel(), host.address(buffers[i]), host.address(place)});
        buffers[i] = place;
        at += wide_bytes(types[i]);
      }
    };
    take(site.in, inner.in, ins_);
    take(site.out, inner.out, outs_);
    std::string reasons;
    kernel_ = find_wide(wide, &reasons)->bind(device, wide, inner);
  }

  void run(Stream& stream) override {
    const LoopSimd& simd = loop_simd();
    for (const Twin& t : ins_) {
      const LoopFn load = t.dtype == DType::f16 ? simd.load_f16 : simd.load_bf16;
      pool_.run_blocks(t.numel, kWidenBlock, [&](int64_t begin, int64_t end) {
        load(t.wide + begin * 4, t.narrow + begin * 2, nullptr, nullptr, end - begin);
      });
    }
    kernel_->run(stream);
    for (const Twin& t : outs_) {
      const LoopFn store = t.dtype == DType::f16 ? simd.store_f16 : simd.store_bf16;
      pool_.run_blocks(t.numel, kWidenBlock, [&](int64_t begin, int64_t end) {
        store(t.narrow + begin * 2, t.wide + begin * 4, nullptr, nullptr, end - begin);
      });
    }
  }

 private:
  ThreadPool& pool_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<Twin> ins_, outs_;
};

std::unique_ptr<Kernel> bind(Device& device, const Site& site, const KernelArgs& args) {
  return std::make_unique<WidenedKernel>(device, site, args);
}

// Fused nodes whose product has 16 bits: the product, rounded, in the workspace; then the chain as a loop over it.
std::optional<Chain> narrow_chain(const Site& site, std::string* reason) {
  const auto& p = site.node.get<FusedParams>();
  return find_chain(p, p.kind, reason, ProductPlace::workspace);
}

struct ChainBytes {
  int64_t product, head, loop;
  int64_t total() const { return product + head + loop; }
};

Site head_site(const Site& site, const Chain& c) { return {c.head, c.head_in, {c.head_out}, site.target}; }

ChainBytes chain_bytes(const Site& site, const Chain& c) {
  return {round_up(c.head_out.bytes(), 64), workspace(head_site(site, c)), c.loop ? Loop::workspace(*c.loop) : 0};
}

std::string accepts_chain(const Site& site) {
  if (site.node.get<FusedParams>().kind == "loop") return "a fused node of kind loop";
  std::string reason;
  const auto c = narrow_chain(site, &reason);
  return c ? accepts(head_site(site, *c)) : reason;
}

int64_t workspace_chain(const Site& site) {
  std::string reason;
  return chain_bytes(site, *narrow_chain(site, &reason)).total();
}

std::unique_ptr<Kernel> bind_chain(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  std::string reason;
  const Chain c = *narrow_chain(site, &reason);
  const ChainBytes bytes = chain_bytes(site, c);
  const Buffer space = args.workspace;
  KernelArgs head;
  for (int i : c.inputs) head.in.push_back(args.in[static_cast<size_t>(i)]);
  head.out = {{space.segment, space.offset, c.head_out.bytes()}};
  head.workspace = {space.segment, space.offset + bytes.product, bytes.head};
  if (c.head_out.numel() == 0) return host_kernel([] {});
  std::vector<std::byte*> in = host.in;
  in.push_back(host.workspace.data());
  auto loop = std::make_shared<const Loop>(*c.loop, in, host.out, host.workspace.data() + bytes.product + bytes.head);
  std::shared_ptr<Kernel> product = bind(device, head_site(site, c), head);
  return host_kernel([product, loop, &pool = host.pool, &stream = device.stream(Lane::compute)] {
    product->run(stream);
    loop->run(pool);
  });
}

}  // namespace

std::vector<KernelTable::Row> widened_rows() {
  std::vector<KernelTable::Row> rows;
  for (const std::string& op : wide_kernels().ops())
    rows.push_back({wide_kernels().candidates(op)[0].op, {"cpu_widened", accepts, workspace, bind}});
  rows.push_back({"fused", {"cpu_widened_chain", accepts_chain, workspace_chain, bind_chain}});
  return rows;
}

}  // namespace lathe::cpu
