#include "backend/cuda/cuda_grid.h"

#include "base/checked.h"
#include "base/error.h"

namespace lathe {

KernelCall fold_grid(KernelCall call, const std::array<int64_t, 3>& largest) {
  const auto [x, y, z] = call.groups;
  if (x <= largest[0] && y <= largest[1] && z <= largest[2]) return call;
  const int64_t blocks = checked_mul(checked_mul(x, y, "grid"), z, "grid");
  if (blocks > largest[0])
    throw DeviceError(fmt::format("cuda: {}: a grid of {} x {} x {} blocks is larger than the device's {}", call.name,
                                  x, y, z, largest[0]));
  const std::string space = fmt::format("folded_{}_{}", x, y), name = fmt::format("{}_{}", call.name, space);
  // The text's helper functions may be there for the plain grid, too: a namespace keeps them apart.
  call.source = fmt::format(
      "#undef GROUP_ID\n"
      "#define GROUP_ID(d) ((long)((d) == 0 ? blockIdx.x % {0}u : (d) == 1 ? blockIdx.x / {0}u % {1}u : blockIdx.x / "
      "{2}u))\n"
      "#define {3} {4}\nnamespace {5} {{\n{6}\n}}\nusing {5}::{4};\n#undef {3}\n"
      "#undef GROUP_ID\n#define GROUP_ID(d) GRID_GROUP(d)\n",
      x, y, x * y, call.name, name, space, call.source);
  call.name = name;
  call.groups = {blocks, 1, 1};
  return call;
}

}  // namespace lathe
