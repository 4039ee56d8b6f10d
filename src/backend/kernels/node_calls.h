// Which node runs as which text of this folder: what the opencl and cuda backends bind.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/kernels/product_calls.h"

namespace lathe {

struct NodeKind {
  std::string_view name;                // "loop", "matmul", ...
  std::string (*accepts)(const Site&);  // "" or the reason
  int64_t (*workspace)(const Site&);    // bytes; null: none
  std::vector<KernelCall> (*calls)(const Site&, const ProductTiles&);
  std::vector<std::string_view> ops{};       // that it computes
  std::vector<std::string_view> wide_ops{};  // the same of f32, and of the 16-bit floats as "widened"
};
constexpr size_t kNodeKinds = 12;
const std::array<NodeKind, kNodeKinds>& node_kinds();  // for one op the first is preferred

struct NodeRow {
  std::string_view op;
  size_t kind;
};
std::vector<NodeRow> node_rows();  // rows of one op are in the order of preference

std::vector<std::string> node_kernel_names(std::string_view backend);  // of each kind: "opencl_loop", ...

// A candidate for every row of node_rows(). Binder::name is the backend's; Binder::bind<kind> binds a node of that
// kind.
template <class Binder>
std::vector<KernelTable::Row> node_candidates() {
  static const std::vector<std::string> names = node_kernel_names(Binder::name);
  const auto bind = []<size_t... kinds>(std::index_sequence<kinds...>) {
    return std::array<decltype(Candidate::bind), sizeof...(kinds)>{&Binder::template bind<kinds>...};
  }
  (std::make_index_sequence<kNodeKinds>());
  std::vector<KernelTable::Row> rows;
  for (const NodeRow& row : node_rows()) {
    const NodeKind& kind = node_kinds()[row.kind];
    rows.push_back({row.op, {names[row.kind], kind.accepts, kind.workspace, bind[row.kind]}});
  }
  return rows;
}

// matmul, convolutions and attention on operands as they are stored, in 16 bits too, in the wide form: the one
// workspace is that of sums that were split. InternalError for other nodes.
std::string direct_reason(const Site&);  // "" or why there is none
int64_t direct_workspace(const Site&);
std::vector<KernelCall> direct_calls(const Site&, const ProductTiles&);

// The calls of the first kind that accepts the node; InternalError where none does.
std::vector<KernelCall> node_calls(const Site&, const ProductTiles&);

}  // namespace lathe
