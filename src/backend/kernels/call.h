// KernelCall: one launch of a kernel text in the common dialect, described without any device API; the opencl and cuda
// backends turn it into bound arguments.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace lathe {

// How a text spreads its work. Narrow: groups of one work-item, each loops over a block (CPUs). Wide: groups of many
// work-items, neighbours touch neighbouring elements (GPUs). Small: wide, for devices that run no groups of 256.
enum class LaunchStyle { narrow, wide, small };
// Work-items of a group, where the text does not say otherwise.
constexpr int group_items(LaunchStyle s) { return s == LaunchStyle::narrow ? 1 : s == LaunchStyle::wide ? 256 : 64; }

constexpr int attention_items(int rows) { return rows > 16 ? 4 * rows : 64; }  // of a wide group of attention.k

// A buffer takes two parameters of the kernel: base pointer, and `long` offset in elements. An integer takes one
// `long`.
struct CallArg {
  enum class Kind { out, in, workspace, integer } kind = Kind::integer;
  int index = 0;  // of the node's outputs or inputs
  DType dtype = DType::f32;
  int64_t value = 0;  // integer; for buffers: elements to skip
};

struct KernelCall {
  std::string source;  // kernel text without the dialect; calls with equal texts share one compilation
  std::string name;    // of the kernel in the text
  std::vector<CallArg> args;
  std::array<int64_t, 3> groups{1, 1, 1};
  int group_size = 1;  // work-items per group, along axis 0
};

inline CallArg out_arg(int index, DType t, int64_t skip = 0) { return {CallArg::Kind::out, index, t, skip}; }
inline CallArg in_arg(int index, DType t, int64_t skip = 0) { return {CallArg::Kind::in, index, t, skip}; }
inline CallArg workspace_arg(DType t, int64_t skip = 0) { return {CallArg::Kind::workspace, 0, t, skip}; }
inline CallArg integer_arg(int64_t v) { return {CallArg::Kind::integer, 0, DType::i64, v}; }

// FNV-1a: names of generated kernels. Stable, because names are part of what the cache of binaries is keyed by.
inline uint64_t text_hash(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

// The texts of this folder, embedded at build.
namespace kernel_text {
extern const char* const dialect;
extern const char* const attention;
extern const char* const product;
extern const char* const pool;
extern const char* const index;
extern const char* const random;
}  // namespace kernel_text

}  // namespace lathe
