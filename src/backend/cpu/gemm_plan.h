// How one product is cut into packing and compute tasks. Nothing here changes the bits of the result: the k blocks
// depend on k alone, the rest only says who computes what and which operand is packed where.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm_kernel.h"

namespace lathe::cpu {

struct GemmPlan {
  enum class Mode {
    tiles,    // tasks are tiles of C; an operand is packed once for all (shared) or by each task (own)
    batches,  // tasks are tiles of C over the whole batch; a task packs all that it needs
    k_split,  // tasks are k blocks; their sums wait in `partial` and are added in order
  };
  Mode mode = Mode::tiles;
  int threads = 1;  // that can be useful
  int64_t kc = 0;   // k block
  int64_t k_blocks = 0;
  int64_t tm = 0, tn = 0;  // tile of C computed by one task
  int64_t mc = 0;          // rows of A that are multiplied with one panel of B before the next one
  int64_t ms = 0, ns = 0;  // part of C between two packings of what is shared
  int64_t ks_blocks = 0;   // k blocks packed at a time, or partial sums kept at a time
  bool share_a = false, share_b = false;

  // Workspace in floats: shared A, shared B, then for each thread own A and own B, then partial sums.
  int64_t shared_a = 0, shared_b = 0, own_a = 0, own_b = 0, partial = 0;
  int64_t floats() const { return shared_a + shared_b + threads * (own_a + own_b) + partial; }
};

// Which operands the kernel reads where they lie: those cost nothing to each thread that needs them.
struct InPlace {
  bool a = false, b = false;
};

GemmPlan plan_gemm(const GemmShape&, int threads, const Geometry&, InPlace);

}  // namespace lathe::cpu
