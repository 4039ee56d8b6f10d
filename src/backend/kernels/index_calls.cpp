#include "backend/kernels/index_calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/kernels/loop_calls.h"
#include "backend/kernels/render_scalar.h"
#include "base/checked.h"
#include "ops/arg_max.h"
#include "ops/concat.h"
#include "ops/full.h"
#include "ops/gather.h"
#include "ops/pad.h"
#include "ops/random_uniform.h"
#include "ops/slice.h"
#include "ops/transpose.h"

namespace lathe {
namespace {

constexpr int64_t kEachBlock = 2048;  // positions of one narrow group
constexpr int64_t kScatterColumns = 16;

// Moves whole elements only, so types of one size share a text.
DType carrier(DType t) {
  switch (size_of(t)) {
    case 1: return DType::u8;
    case 2: return DType::f16;
    case 4: return DType::i32;
    default: return DType::i64;
  }
}

// A kernel of `text` that visits `total` positions; `kernel` is its name before NAME().
KernelCall each_call(const char* text, std::string_view kernel, DType element, DType index, int64_t total,
                     LaunchStyle style) {
  const bool narrow = style == LaunchStyle::narrow;
  KernelCall call;
  const std::string suffix = fmt::format("_{}_{}_{}", to_string(element), to_string(index), narrow ? "narrow" : "wide");
  call.name = fmt::format("{}{}", kernel, suffix);
  std::string with = fmt::format("WITH_{}", kernel);
  std::ranges::transform(with, with.begin(),
                         [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); });
  std::string each;
  if (narrow) {
    call.groups = {ceil_div(total, kEachBlock), 1, 1};
    each = fmt::format(
        "#define NARROW\n#define SCATTER_COLUMNS {1}\n#define EACH_GROUP GROUP_SIZE(1)\n"
        "#define EACH(e, total) for (long e = GROUP_ID(0) * {0}; e < MIN_OF((GROUP_ID(0) + 1) * {0}, total); ++e)\n",
        kEachBlock, kScatterColumns);
  } else {
    call.group_size = group_items(style);
    call.groups = {ceil_div(total, call.group_size), 1, 1};
    each = fmt::format(
        "#define EACH_ITEMS {0}\n#define EACH_GROUP GROUP_SIZE({0})\n"
        "#define EACH(e, total) for (long e = GROUP_ID(0) * {0} + LOCAL_ID; e < total; e += total)\n",
        call.group_size);
  }
  call.source = fmt::format("{}#define {}\n#define T {}\n#define INDEX {}\n#define NAME(x) x##{}\n{}", each, with,
                            device_type(element), device_type(index), suffix, text);
  for (const std::string& macro :
       {with, std::string("T"), std::string("INDEX"), std::string("NAME"), std::string("EACH"),
        std::string("EACH_GROUP"), std::string("EACH_ITEMS"), std::string("NARROW"), std::string("SCATTER_COLUMNS")})
    call.source += fmt::format("#undef {}\n", macro);
  return call;
}

void integers(KernelCall& call, std::initializer_list<int64_t> values) {
  for (const int64_t v : values) call.args.push_back(integer_arg(v));
}

KernelCall gather_call(ArgTypes in, ArgTypes out, LaunchStyle style) {
  const DType t = carrier(in[0].dtype);
  const int64_t width = out[0].numel() / in[1].numel();
  KernelCall call = each_call(kernel_text::index, "gather", t, in[1].dtype, out[0].numel(), style);
  call.args = {out_arg(0, t), in_arg(0, t), in_arg(1, in[1].dtype)};
  integers(call, {out[0].numel(), width, in[0].shape[0]});
  return call;
}

KernelCall scatter_call(const Node& n, ArgTypes in, ArgTypes out, LaunchStyle style) {
  const int64_t rows = n.get<ScatterAddParams>().rows, width = out[0].numel() / rows;
  KernelCall call = each_call(kernel_text::index, "scatter_add", in[1].dtype, in[0].dtype, width, style);
  if (style == LaunchStyle::narrow) call.groups = {ceil_div(width, kScatterColumns), 1, 1};
  call.args = {out_arg(0, in[1].dtype), in_arg(0, in[0].dtype), in_arg(1, in[1].dtype)};
  integers(call, {width, in[0].numel(), rows});
  return call;
}

KernelCall random_call(const Node& n, ArgTypes out, LaunchStyle style) {
  const int64_t samples = out[0].shape[0], per_sample = out[0].numel() / samples, blocks = ceil_div(per_sample, 4);
  KernelCall call = each_call(kernel_text::random, "random_uniform", DType::f32, DType::i64, samples * blocks, style);
  call.args = {out_arg(0, DType::f32), in_arg(0, DType::i64), in_arg(1, DType::i64)};
  integers(call, {samples * blocks, blocks, per_sample, n.get<RandomUniformParams>().stream});
  return call;
}

// Strides of a box within a dense tensor, and the offset of its corner.
int64_t corner(const Shape& whole, const Ints& starts) {
  const Ints dense = whole.strides();
  int64_t at = 0;
  for (size_t d = 0; d < dense.size(); ++d) at += starts[d] * dense[d];
  return at;
}

}  // namespace

std::vector<KernelCall> index_calls(const Node& n, ArgTypes in, ArgTypes out, LaunchStyle style) {
  if (out[0].numel() == 0) return {};
  if (n.is("gather")) return {gather_call(in, out, style)};
  if (n.is("scatter_add")) return {scatter_call(n, in, out, style)};
  if (n.is("random_uniform")) return {random_call(n, out, style)};
  if (n.is("iota")) {
    const auto& p = n.get<IotaParams>();
    const Shape& s = out[0].shape;
    const int axis = normalize_axis(p.axis, s.ndim(), "iota");
    KernelCall call = each_call(kernel_text::index, "iota", p.dtype, DType::i64, s.numel(), style);
    call.args = {out_arg(0, p.dtype)};
    integers(call, {s.numel(), s.strides()[static_cast<size_t>(axis)], s[axis]});
    return {call};
  }
  LATHE_CHECK(n.is("arg_max"), "{}", n.op->name());
  const Shape& s = in[0].shape;
  const auto axis = n.get<ArgMaxParams>().axis;
  KernelCall call = each_call(kernel_text::index, "arg_max", in[0].dtype, DType::i32, out[0].numel(), style);
  call.args = {out_arg(0, DType::i32), in_arg(0, in[0].dtype)};
  integers(call, {out[0].numel(), s[static_cast<int>(axis)], s.strides()[static_cast<size_t>(axis)]});
  return {call};
}

std::vector<KernelCall> copy_calls(const Node& n, ArgTypes in, ArgTypes out, LaunchStyle style) {
  const Shape& y = out[0].shape;
  const DType t = carrier(out[0].dtype);
  const auto copy = [&](const Shape& box, int input, Ints read, int64_t read_at, Ints write, int64_t write_at) {
    return loop_calls(copy_nest(t, box, input, std::move(read), read_at, 0, std::move(write), write_at), style);
  };
  if (n.is("reshape")) return copy(y, 0, y.strides(), 0, y.strides(), 0);
  const Ints dense = in[0].shape.strides();
  if (n.is("transpose")) {
    Ints read;
    for (const int64_t axis : n.get<TransposeParams>().perm) read.push_back(dense[static_cast<size_t>(axis)]);
    return copy(y, 0, read, 0, y.strides(), 0);
  }
  if (n.is("slice")) {
    const auto& p = n.get<SliceParams>();
    Ints read = dense;
    for (size_t d = 0; d < read.size(); ++d) read[d] *= p.steps[d];
    return copy(y, 0, read, corner(in[0].shape, p.starts), y.strides(), 0);
  }
  if (n.is("pad")) {
    const auto& p = n.get<PadParams>();
    LoopNest fill = copy_nest(out[0].dtype, y, 0, y.strides(), 0, 0, y.strides(), 0);
    const DType computed = compute_type(out[0].dtype);
    fill.map = {{.op = ScalarOp::constant, .value = p.value, .dtype = computed, .from = computed}};
    fill.reads.clear();
    std::vector<KernelCall> calls = loop_calls(fill, style);
    Ints write = y.strides();
    for (size_t d = 0; d < write.size(); ++d) write[d] *= p.interior[d] + 1;
    for (KernelCall& c : copy(in[0].shape, 0, dense, 0, write, corner(y, p.low))) calls.push_back(std::move(c));
    return calls;
  }
  LATHE_CHECK(n.is("concat"), "{}", n.op->name());
  std::vector<KernelCall> calls;
  int64_t at = 0;
  const auto axis = n.get<ConcatParams>().axis;
  for (size_t i = 0; i < in.size(); ++i) {
    for (KernelCall& c : copy(in[i].shape, static_cast<int>(i), in[i].shape.strides(), 0, y.strides(),
                              at * y.strides()[static_cast<size_t>(axis)]))
      calls.push_back(std::move(c));
    at += in[i].shape[static_cast<int>(axis)];
  }
  return calls;
}

}  // namespace lathe
