// A fused node of kind "loop" in the form that backends execute:
//
//   for each point of `domain`:       run `map`; store its results; feed one of them to the reduction, if there is one
//   for each point of `reduced`:      run `tail` on the reduced value; store its results
//
// f16 and bf16 appear in reads and stores only: a read of them gives f32, a store to them rounds. What the graph's
// nodes round between themselves is a round_f16 or round_bf16 instruction.
//
// Single elementwise, cast, broadcast and reduce nodes have this form too, so one evaluator serves all of them.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"
#include "ops/scalar.h"

namespace lathe {

// Where `arg` instructions read: input number and strides in elements over the domain (0 where it repeats).
struct LoopRead {
  int input = 0;
  DType dtype = DType::f32;
  Ints strides;
};

struct LoopStore {
  int32_t instr = 0;  // of the section's instructions
  int output = 0;     // of the node; dense over the section's domain
  DType dtype = DType::f32;
};

// `arg` instruction k reads reads[instr.a]; in the tail, arg number -1 is the reduced value.
struct LoopSection {
  std::vector<LoopRead> reads;
  std::vector<ScalarInstr> instrs;
  std::vector<LoopStore> stores;
};

enum class LoopReduce { none, sum, max };

struct LoopProgram {
  Shape domain;
  LoopSection map;
  LoopReduce reduce = LoopReduce::none;
  Ints axes;                  // reduced axes of the domain, ascending
  int32_t reduce_instr = -1;  // of map.instrs
  DType reduce_dtype = DType::f32;
  Shape reduced;  // the domain with reduced axes of size 1
  LoopSection tail;
};

constexpr int32_t kReducedArg = -1;

// The program of a body, or why it has none. `reason` is set when nullopt is returned.
std::optional<LoopProgram> lower_loop(const Graph& body, std::string* reason = nullptr);
// The same for a node: a fused loop, or a single elementwise, cast, broadcast, full or reduce node.
std::optional<LoopProgram> lower_loop(const Node&, ArgTypes in, std::string* reason = nullptr);

}  // namespace lathe
