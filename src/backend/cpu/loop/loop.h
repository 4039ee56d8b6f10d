// The loop evaluator: every elementwise, cast, broadcast, full and reduce node, and fused nodes of kind "loop".
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/loop/loop_code.h"
#include "backend/cpu/loop/loop_reduce.h"
#include "base/thread_pool.h"
#include "ops/loop.h"

namespace lathe::cpu {

// A loop program bound to memory. Any output may share its memory with an input that is dense over the same points.
class Loop {
 public:
  Loop(const LoopProgram&, std::span<std::byte* const> in, std::span<std::byte* const> out, std::byte* workspace);
  void run(ThreadPool&) const;

  static int64_t workspace(const LoopProgram&);
  static std::string unsupported(const LoopProgram&);

 private:
  void run_map(ThreadPool&, const LoopCode&) const;

  LoopReduce reduce_;
  std::unique_ptr<LoopCode> map_, tail_;
  std::vector<ReduceStage> stages_;
  std::vector<std::byte*> results_;  // of the stages
  LoopAccumulate first_{}, next_{};  // of registers, of partial results
};

}  // namespace lathe::cpu
