// LoopNest: a LoopProgram with its axes merged as far as all accesses allow, split into kept and reduced axes; what the
// renderer (loop_calls.h) turns into kernel text. Also describes strided copies, whose writes are not dense.
#pragma once

#include <vector>

#include "ops/loop.h"

namespace lathe {

constexpr int kWorkspaceBuffer = -1;

// Strides in elements over the nest's merged axes.
struct LoopAccess {
  DType dtype = DType::f32;
  int buffer = 0;      // input or output number of the node, or kWorkspaceBuffer
  int64_t offset = 0;  // elements
  Ints kept, reduced;
};

struct LoopNest {
  Ints kept, reduced;                     // sizes, outermost first; possibly empty: one point
  bool inner_reduced = false;             // the innermost axis of the domain is a reduced one
  std::vector<LoopAccess> reads, writes;  // of the map
  std::vector<LoopAccess> tail_reads;     // over the kept axes; tail writes are dense over them

  std::vector<ScalarInstr> map, tail;
  std::vector<int32_t> map_stores;  // instruction of each write
  std::vector<LoopStore> tail_stores;
  LoopReduce reduce = LoopReduce::none;
  int32_t reduce_instr = -1;
  DType reduce_dtype = DType::f32;
};

LoopNest make_nest(const LoopProgram&);

// Copies a box of the input into a box of the output: both described by strides over `box` and an offset.
LoopNest copy_nest(DType, const Shape& box, int input, Ints read_strides, int64_t read_offset, int output,
                   Ints write_strides, int64_t write_offset);

}  // namespace lathe
