#include "backend/kernels/pool_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "backend/kernels/render_scalar.h"
#include "base/checked.h"
#include "base/error.h"
#include "ops/pool.h"

namespace lathe {
namespace {

constexpr int64_t kPoolBlock = 4096;               // elements of one narrow group
constexpr int64_t kMostPixels = int64_t{1} << 30;  // the text counts in int

}  // namespace

std::vector<KernelCall> pool_calls(const Node& n, ArgTypes in, ArgTypes out, LaunchStyle style) {
  if (out[0].numel() == 0) return {};
  std::string op(n.op->name());
  const DType t = out[0].dtype;
  const auto& p = n.get<PoolParams>();
  const Shape& x = op == "avg_pool_grad" ? out[0].shape : in.back().shape;
  const PoolGeometry g = pool_geometry(op.c_str(), x, p);
  const bool narrow = style == LaunchStyle::narrow;
  const bool tiles = op == "max_pool_grad" && g.tiles();
  if (tiles) op = "max_pool_grad_tiles";
  LATHE_CHECK(g.x().numel() / g.channels < kMostPixels, "{} pixels", g.x().numel() / g.channels);

  KernelCall call;
  call.group_size = group_items(style);
  const std::string suffix =
      fmt::format("_{}{}{}", to_string(t), op == "max_pool_pick" ? "_pick" : "", narrow ? "_narrow" : "_wide");
  call.name = (op == "max_pool_pick" ? "max_pool" : op) + suffix;
  std::string with = "WITH_" + op;
  std::ranges::transform(with, with.begin(),
                         [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); });
  call.source = fmt::format(
      "{}#define POOL_ITEMS {}\n#define {}\n#define REAL {}\n#define NAME(x) x##{}\n{}#undef {}\n#undef REAL\n"
      "#undef NAME\n#undef NARROW\n#undef POOL_ITEMS\n",
      narrow ? "#define NARROW\n" : "", call.group_size, with, device_type(t), suffix, kernel_text::pool, with);

  const int64_t pixels = (tiles ? g.y().numel() : out[0].numel()) / g.channels;
  const int64_t per = std::max<int64_t>(1, kPoolBlock / g.channels);
  call.groups = {narrow ? ceil_div(pixels, per) : ceil_div(pixels * g.channels, call.group_size), 1, 1};
  call.args.push_back(out_arg(0, t));
  for (size_t i = 0; i < in.size(); ++i) call.args.push_back(in_arg(static_cast<int>(i), t));
  for (const int64_t v : {pixels, per, g.channels, g.in_h, g.in_w, g.out_h, g.out_w, g.kernel_h, g.kernel_w, g.stride_h,
                          g.stride_w, g.pad_top, g.pad_left})
    call.args.push_back(integer_arg(v));
  return {call};
}

}  // namespace lathe
