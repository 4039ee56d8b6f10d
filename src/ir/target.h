// Target: what passes and the plan know of a device. Plain data, so that a plan can be made for a device that is not
// there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace lathe {

// Between ranks; the same on all of them, for buckets follow from it. A run measures its own (comm/measure_link.h); the
// defaults are for plans without one: processes of one busy host.
struct Link {
  double latency = 12e-6;  // seconds of a message beside those of its bytes
  double bandwidth = 3e9;  // bytes per second that a rank sends
};

struct Target {                         // A device as passes and plan see it.
  std::string name = "ref";             // of the backend, or of the device spec
  std::vector<std::string> native_ops;  // ops with at least one kernel, sorted; `expand` opens other composites
  std::vector<DType> dtypes{DType::f32, DType::i32, DType::i64, DType::u8, DType::b8};  // of tensors
  int64_t alignment = 64;                         // of every value in the arena, in bytes
  int64_t memory = int64_t{1} << 62;              // bytes that may be allocated
  int64_t largest_allocation = int64_t{1} << 62;  // bytes that one allocation may have
  bool host_memory = true;                        // the arena is memory of the host: batches need no slots there
  int threads = 1;                                // cpu: compute threads (never changes results)
  int64_t library_workspace = 0;                  // bytes that a vendor library may use in one launch
  int capability = 0;                             // cuda: compute capability times 10; 0: any
  struct Missing {                                // A library that was looked for.
    std::string library, reason;                  // which, and why it is not there
  };
  std::vector<Missing> missing;  // libraries of the backend that the machine lacks; their kernels decline
  int fuse_max_inputs = 12;      // of one fused node
  // Products can be fused with the gradients of gelu and bias (ops/fused.h); gelu where rows are a multiple of this
  // many columns. 0: they cannot.
  int64_t gradient_epilogues = 0;
  double peak_flops = 0;      // of a device spec, in f32; 0: unknown, and so it is of every device that was opened
  double peak_bandwidth = 0;  // the same, in bytes per second
  Link link;                  // between ranks, each of which has such a device

  bool is_native(std::string_view op) const;  // whether the op is in native_ops
};

}  // namespace lathe
