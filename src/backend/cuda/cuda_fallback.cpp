#include "backend/cuda/cuda_fallback.h"

#include "backend/cuda/cuda_site.h"
#include "backend/kernels/node_calls.h"

namespace lathe {
namespace {

std::string accepts_direct(const Site& s) {
  if (!is_16bit(s.out[0].dtype)) return fmt::format("for the 16-bit floats, not {}", to_string(s.out[0].dtype));
  return direct_reason(s);
}

std::unique_ptr<Kernel> bind_direct(Device& d, const Site& s, const KernelArgs& args) {
  ProductTiles tiles;
  tiles.style = LaunchStyle::wide;
  return as_cuda(d).bind(range_name(s.node), direct_calls(s, tiles), args);
}

}  // namespace

int64_t fallback_workspace(const Site& s) { return direct_workspace(s); }

std::unique_ptr<Kernel> bind_fallback(CudaDevice& device, const Site& s, const KernelArgs& args,
                                      const std::string& library, const std::string& lacks) {
  LATHE_CHECK(fallback_workspace(s) <= args.workspace.bytes, "{} bytes of workspace, {} are needed",
              args.workspace.bytes, fallback_workspace(s));
  device.note(library,
              fmt::format("{} of {}, {}: {}", s.node.op->name(), to_string(s.in[0]), to_string(s.in[1]), lacks));
  return bind_direct(device, s, args);
}

std::vector<KernelTable::Row> cuda_direct_rows() {
  std::vector<KernelTable::Row> rows;
  for (const char* op : {"matmul", "conv2d", "conv2d_dx", "conv2d_dw", "attention", "attention_grad"})
    rows.push_back({op, {kFallbackName, accepts_direct, fallback_workspace, bind_direct}});
  return rows;
}

}  // namespace lathe
