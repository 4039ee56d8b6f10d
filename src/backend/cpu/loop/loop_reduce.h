// Reductions of the loop evaluator as a fixed tree. The domain is seen as [outer, len, inner] and `len` is cut into
// chunks whose size depends on the shape alone; each stage turns a chunk into one value, and stages follow until one
// value per kept point is left. So the order of additions never depends on threads.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/cpu/loop/loop_code.h"
#include "base/thread_pool.h"

namespace lathe::cpu {

struct ReduceStage {
  int64_t outer = 1, len = 1, inner = 1;
  int64_t chunk = 1;   // of len: one partial result each
  int64_t chunks = 1;  // result: [outer, chunks, inner]
  int64_t result_numel() const { return outer * chunks * inner; }
};

std::vector<ReduceStage> reduce_stages(const Shape& domain, const Ints& axes);

// One stage over the values of `code` (the first stage) or over `source`, an array of accumulators (the others). `acc`
// takes these values, `fold` takes accumulators.
void run_reduce_stage(ThreadPool&, const ReduceStage&, const LoopCode* code, const std::byte* source,
                      const LoopAccumulate& acc, const LoopAccumulate& fold, std::byte* result);

}  // namespace lathe::cpu
