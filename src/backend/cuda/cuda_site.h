// What several kernel families of the cuda backend ask of a node.
#pragma once

#include <optional>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/cuda_abi.h"
#include "ops/loop.h"

namespace lathe {

// What profilers show of a node: "conv2d_dx conv1".
std::string range_name(const Node&);
int cuda_data_type(DType);   // cuda::DataType; -1: none
int cudnn_data_type(DType);  // cuda::DnnDataType; -1: none
// LATHE_TF32=1: f32 products may run on tensor cores with inputs rounded to TF32. Faster, not what the reference
// computes; opt-in.
bool tf32_allowed();
bool tf32_allowed(const Target&);  // and the card has it
// Why its tensor cores do not take the type; "" when they do. cuDNN has engines for no other 16-bit type than theirs.
std::string tensor_core_reason(const Target&, DType);
// Why the library cannot be used on the target; "" when it can.
std::string library_reason(const Target&, std::string_view library);
// A fused node of kind `op`: that op (the head) on inputs of the node, then elementwise work on its result.
struct HeadChain {
  Node head;
  Types head_in;
  TensorType head_out;
  std::vector<int> inputs;  // of the head: positions of the node's inputs
  int output = 0;           // of the node: holds the head's result, and what was absorbed
  // Absorbed, in this order: input with one value per column; input of the result's shape; activation.
  int bias = -1, residual = -1;
  enum class Activation { none, relu, gelu } activation = Activation::none;
  // Gradient forms of a product (ops/fused.h); -1: none.
  int gelu_input = -1;     // output of the node: what gelu was applied to
  int slope_input = -1;    // input z of the node: the product is multiplied by gelu_slope(z)
  int bias_gradient = -1;  // output of the node: a sum over the rows of `output`, or over k of the operand `summed`
  int summed = -1;         // 0 or 1
  Site head_site(const Site& s) const { return {head, head_in, {head_out}, s.target}; }
  bool has_gradient() const { return gelu_input >= 0 || slope_input >= 0 || bias_gradient >= 0; }
  // The rest: over the node's inputs and, as one more, what is in `output`, which it may overwrite.
  std::optional<LoopProgram> loop;
  std::vector<int> loop_outputs;  // of the node, that the loop writes
};
// nullopt, with the reason, for other nodes. `absorb`: the head can add a bias and a residual, apply an activation, and
// compute the gradient forms.
std::optional<HeadChain> head_chain(const Node& fused, std::string_view op, bool absorb, std::string* reason);
// Arguments of the head alone and of the chain's loop; the head has the first bytes of the workspace.
KernelArgs head_args(const HeadChain&, const KernelArgs& node, int64_t head_workspace);
KernelArgs loop_args(const HeadChain&, const KernelArgs& node, int64_t head_workspace);

// One kernel that runs both.
std::unique_ptr<Kernel> in_order(std::unique_ptr<Kernel> first, std::unique_ptr<Kernel> second);

}  // namespace lathe
