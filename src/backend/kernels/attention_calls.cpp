#include "backend/kernels/attention_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "backend/kernels/render_scalar.h"
#include "base/checked.h"
#include "base/error.h"
#include "ops/attention.h"

namespace lathe {
namespace {

constexpr int64_t kMostAttentionRows = int64_t{1} << 30;

// BLOCK and PADDED of the text, at least: six tiles of that size and two of scores fit 32 KB of local memory.
struct HeadTiles {
  int64_t block, padded;
};
std::optional<HeadTiles> head_tiles(const TensorType& q) {
  constexpr int64_t kTileBytes = 4096;
  const int64_t row = size_of(compute_type(q.dtype));
  for (const HeadTiles t : {HeadTiles{16, round_up(q.shape[3], 16)}, HeadTiles{8, round_up(q.shape[3], 32)}})
    if (t.block * t.padded * row <= kTileBytes) return t;
  return std::nullopt;
}

// One of the three kernels of the text.
struct AttentionPart {
  const char* define;
  const char* kernel;
  int matrices, squares;  // in local memory: of BLOCK x PADDED, of BLOCK x BLOCK
};
constexpr AttentionPart kAttentionForward{"WITH_FORWARD", "attention", 4, 1};
constexpr AttentionPart kAttentionQueryGrad{"WITH_QUERY_GRAD", "attention_grad", 5, 2};
constexpr AttentionPart kAttentionKeyGrad{"WITH_KEY_GRAD", "attention_grad", 6, 2};

// The rows that the tiles ask for, where that is more than usual: halved until a sequence fills more than half of them
// and they fit local memory.
HeadTiles head_tiles(const AttentionPart& part, const TensorType& q, const ProductTiles& tiles) {
  const HeadTiles least = *head_tiles(q);
  if (tiles.attention_rows <= 16) return least;
  int64_t rows = tiles.attention_rows;
  const auto bytes = [&] {
    return rows * (part.matrices * least.padded + part.squares * rows + 4) * size_of(compute_type(q.dtype));
  };
  while (rows > least.block && (q.shape[2] <= rows / 2 || bytes() > tiles.local_bytes)) rows /= 2;
  return {rows, least.padded};
}

KernelCall make_call(const AttentionPart& part, const TensorType& q, const AttentionParams& p,
                     const ProductTiles& tiles) {
  const int64_t length = q.shape[2], width = q.shape[3];
  const bool narrow = tiles.style == LaunchStyle::narrow;
  const DType computed = compute_type(q.dtype);
  const auto [block, padded] = head_tiles(part, q, tiles);
  const std::string type(device_type(computed));
  std::string defines = fmt::format(
      "#define {}\n#define REAL {}\n#define WIDTH {}\n#define BLOCK {}\n#define PADDED {}\n#define SCALE {}\n",
      part.define, type, width, block, padded, device_literal(computed, p.scale));
  if (q.dtype != computed) {
    LATHE_CHECK(!narrow, "attention of {}", to_string(q.dtype));
    defines += fmt::format("#define STORED {}\n#define VALUE(x) {}\n#define ROUNDED(x) {}\n", device_type(q.dtype),
                           device_load(q.dtype, computed, "(x)"), device_store(q.dtype, computed, "(x)"));
  }
  if (narrow) {
    const int lanes = std::clamp<int>(tiles.vector_bytes / static_cast<int>(size_of(computed)), 2,
                                      static_cast<int>(std::min<int64_t>(block, 16)));
    defines += fmt::format(
        "#define NARROW\n#define VECTOR {0}{1}\n#define LOAD vload{1}\n#define STORE vstore{1}\n#define LANES {1}\n",
        type, lanes);
  }
  KernelCall call;
  const std::string suffix =
      fmt::format("_{}_{}_{:08x}", to_string(q.dtype), width, text_hash(part.define + defines) & 0xffffffffu);
  call.name = part.kernel + suffix;
  call.source = fmt::format("{}#define NAME(x) x##{}\n{}", defines, suffix, kernel_text::attention);
  for (const char* macro :
       {part.define, "REAL", "WIDTH", "BLOCK", "PADDED", "SCALE", "NARROW", "VECTOR", "LOAD", "STORE", "LANES", "NAME"})
    call.source += fmt::format("#undef {}\n", macro);
  call.groups = {ceil_div(length, block), q.shape[0] * q.shape[1], 1};
  call.group_size = narrow ? 1 : attention_items(static_cast<int>(block));
  return call;
}

}  // namespace

std::string attention_reason(ArgTypes in) {
  const TensorType& q = in[1].shape.ndim() == 4 ? in[1] : in[0];
  if (!head_tiles(q))
    return fmt::format("heads of {} x {}: tiles would not fit 32 KB of local memory", q.shape[3], to_string(q.dtype));
  return q.shape[2] < kMostAttentionRows ? "" : "too long a sequence";
}

std::vector<KernelCall> attention_calls(const Node& n, ArgTypes in, ArgTypes out, const ProductTiles& tiles) {
  const auto& p = n.get<AttentionParams>();
  const bool forward = n.is("attention");
  const TensorType& q = forward ? in[0] : in[1];
  LATHE_CHECK(out[0].numel() > 0, "an empty head");
  std::vector<KernelCall> calls;
  if (forward) {
    calls.push_back(make_call(kAttentionForward, q, p, tiles));
    calls[0].args = {out_arg(0, q.dtype), out_arg(1, out[1].dtype)};
  } else {
    calls.push_back(make_call(kAttentionQueryGrad, q, p, tiles));
    calls[0].args = {out_arg(0, q.dtype)};
    calls.push_back(make_call(kAttentionKeyGrad, q, p, tiles));
    calls[1].args = {out_arg(1, q.dtype), out_arg(2, q.dtype)};
  }
  for (KernelCall& call : calls) {
    for (size_t i = 0; i < in.size(); ++i) call.args.push_back(in_arg(static_cast<int>(i), in[i].dtype));
    call.args.push_back(integer_arg(q.shape[2]));
    call.args.push_back(integer_arg(p.causal ? 1 : 0));
  }
  return calls;
}

}  // namespace lathe
