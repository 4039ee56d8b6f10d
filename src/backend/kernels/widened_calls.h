// The 16-bit floats on texts of f32: inputs are widened into the workspace, the launches for f32 run there, and what
// they give is rounded into the outputs. Loops and copies take 16-bit types themselves.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/kernels/product_calls.h"

namespace lathe {

bool has_16bit(const Site&);  // among inputs and outputs
Site wide_site(const Site&);  // the same with f32 for the 16-bit types

// `bytes`: workspace of the launches for f32, which keep its beginning.
int64_t widened_workspace(const Site&, int64_t bytes);
std::vector<KernelCall> widened_calls(const Site&, int64_t bytes, std::vector<KernelCall> wide, LaunchStyle);

// A fused node of kind "matmul" or "conv2d" whose product has 16 bits: the product is rounded in the workspace, and the
// rest of the body is a loop over it.
struct NarrowChain {
  Node head;
  Types head_in;
  TensorType head_out;
  std::vector<int> inputs;  // of the head, among the node's
  LoopProgram loop;         // the product is its input number `loop_input`
  int loop_input = 0;
  Site head_site(const Site& s) const { return {head, head_in, {head_out}, s.target}; }
};
std::optional<NarrowChain> narrow_chain(const Site&, std::string* reason);
// `head_bytes`, `head`: workspace and launches of the head alone.
int64_t narrow_chain_workspace(const NarrowChain&, int64_t head_bytes);
std::vector<KernelCall> narrow_chain_calls(const NarrowChain&, int64_t head_bytes, std::vector<KernelCall> head,
                                           LaunchStyle);

}  // namespace lathe
