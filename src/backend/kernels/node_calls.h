// Which node runs as which text of this folder: what the opencl and cuda backends bind.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/kernels/product_calls.h"

namespace lathe {

struct NodeKind {
  std::string_view name;                // "loop", "matmul", ...
  std::string (*accepts)(const Site&);  // "" or the reason
  int64_t (*workspace)(const Site&);    // bytes; null: none
  std::vector<KernelCall> (*calls)(const Site&, const ProductTiles&);
};
constexpr size_t kNodeKinds = 10;
const std::array<NodeKind, kNodeKinds>& node_kinds();

struct NodeRow {
  std::string_view op;
  size_t kind;
};
std::vector<NodeRow> node_rows();  // rows of one op are in the order of preference

// The calls of the first kind that accepts the node; InternalError where none does.
std::vector<KernelCall> node_calls(const Site&, const ProductTiles&);

}  // namespace lathe
