// How one product is cut into packing and compute tasks. Nothing here changes the bits of the result: the k blocks
// depend on k alone, the rest only says who computes what and which operand is packed where.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm/gemm_kernel.h"

namespace lathe::cpu {

// [0, total) in pieces, whole units but for the last: `full` pieces of `step`, then `tail` ones of nearly equal size.
class Cut {
 public:
  static Cut whole(int64_t total) { return even(total, total); }
  // Pieces of `step`, the last one shorter.
  static Cut even(int64_t total, int64_t step);
  // Pieces of `step`, the last one longer: so pieces of packed B begin where a panel does, however its last panels are
  // cut.
  static Cut last_longer(int64_t total, int64_t step);
  // For tasks that the next free thread takes, none longer than `longest`. Cores are seldom equally fast, so with
  // several threads (`ways`) the long pieces leave work for short ones (about `shortest` or more) at the end.
  static Cut tasks(int64_t total, int64_t longest, int64_t ways, int64_t unit, int64_t shortest);

  int64_t count() const { return full_ + tail_; }
  int64_t begin(int64_t i) const;
  int64_t size(int64_t i) const { return begin(i + 1) - begin(i); }
  int64_t longest() const;

 private:
  Cut(int64_t total, int64_t unit, int64_t step, int64_t full, int64_t tail)
      : total_(total), unit_(unit), step_(step), full_(full), tail_(tail) {}
  int64_t total_, unit_, step_, full_, tail_;
};

struct GemmPlan {
  enum class Mode {
    tiles,    // tasks are tiles of C; an operand is packed once for all (shared) or by each task (own)
    batches,  // tasks are tiles of C over the whole batch; a task packs all that it needs
    k_split,  // tasks are k blocks; their sums wait in `partial` and are added in order
  };
  explicit GemmPlan(const GemmShape& s) : rows(Cut::whole(s.m)), cols(Cut::whole(s.n)) {}

  Mode mode = Mode::tiles;
  int threads = 1;  // that can be useful
  int64_t kc = 0;   // k block
  int64_t k_blocks = 0;
  Cut rows, cols;          // tiles of C that are tasks; run_part cuts the dimension of what is shared
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
