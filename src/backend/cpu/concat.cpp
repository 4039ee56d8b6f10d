#include "ops/concat.h"

#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"
#include "backend/cpu/strided_copy.h"

namespace lathe::cpu {
namespace {

std::unique_ptr<Kernel> bind(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const int axis = static_cast<int>(site.node.get<ConcatParams>().axis);
  const DType t = site.out[0].dtype;
  const Ints dst = site.out[0].shape.strides();
  struct Part {
    StridedCopy copy;
    std::byte* y;
    const std::byte* x;
  };
  std::vector<Part> parts;
  int64_t start = 0;
  for (size_t i = 0; i < site.in.size(); ++i) {
    const Shape& s = site.in[i].shape;
    if (s.numel() > 0)
      parts.push_back({StridedCopy(t, s, dst, s.strides()),
                       host.out[0] + start * dst[static_cast<size_t>(axis)] * size_of(t), host.in[i]});
    start += s[axis];
  }
  return host_kernel([parts, &pool = host.pool] {
    for (const Part& p : parts) p.copy.run(pool, p.y, p.x);
  });
}

}  // namespace

std::vector<KernelTable::Row> concat_rows() { return {{"concat", {"cpu_concat", accepts_all, nullptr, bind}}}; }

}  // namespace lathe::cpu
