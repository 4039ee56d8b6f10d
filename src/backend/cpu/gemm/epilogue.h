// The elementwise chain behind a matmul or conv2d in a fused node: as much as possible becomes the epilogue of the
// multiply (bias per column, residual, relu); any other chain is a loop over the finished result.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/loop/loop.h"
#include "ops/fused.h"

namespace lathe::cpu {

// How to run a body that is one node (the head) followed by elementwise nodes. Inputs are positions of the fused
// node's inputs, -1 where there is none.
struct Chain {
  Node head;
  Types head_in;
  TensorType head_out;
  std::vector<int> inputs;  // of the head
  int output = 0;           // of the fused node: receives the head's result; -1: the workspace does
  int bias_col = -1, residual = -1;
  bool relu = false;
  // The rest, over the fused node's inputs and, as one more input, what the head and its epilogue left.
  std::optional<LoopProgram> loop;
};

// Where the product of 16-bit values is rounded before the chain reads it, there is no epilogue: all of the chain is a
// loop.
enum class ProductPlace { output, workspace };

// The chain behind the only node of `op` in the body; nullopt with a reason where it has another form. In an output:
// products of f32 and f64; in the workspace: those of 16 bits.
std::optional<Chain> find_chain(const FusedParams&, std::string_view op, std::string* reason,
                                ProductPlace = ProductPlace::output);

template <class T>
Epilogue<T> chain_epilogue(const Chain& c, std::span<std::byte* const> in) {
  Epilogue<T> e;
  if (c.bias_col >= 0) e.bias_col = reinterpret_cast<const T*>(in[static_cast<size_t>(c.bias_col)]);
  if (c.residual >= 0) e.residual = reinterpret_cast<const T*>(in[static_cast<size_t>(c.residual)]);
  e.relu = c.relu;
  return e;
}

}  // namespace lathe::cpu
