#include "backend/kernels/node_calls.h"

#include <algorithm>

#include "backend/kernels/attention_calls.h"
#include "backend/kernels/conv2d_calls.h"
#include "backend/kernels/index_calls.h"
#include "backend/kernels/loop_calls.h"
#include "backend/kernels/matmul_calls.h"
#include "backend/kernels/pool_calls.h"
#include "backend/kernels/widened_calls.h"
#include "ops/elementwise.h"
#include "ops/fused.h"

namespace lathe {
namespace {

std::string check_type(const Target& target, DType t) {
  if (std::ranges::find(target.dtypes, t) != target.dtypes.end()) return "";
  return fmt::format("the device does not compute in {}", to_string(t));
}

std::string check_types(const Site& s) {
  for (const Types* list : {&s.in, &s.out})
    for (const TensorType& t : *list)
      if (std::string reason = check_type(s.target, t.dtype); !reason.empty()) return reason;
  return "";
}

// For texts that compute in the type of their buffers.
std::string check_wide_types(const Site& s) {
  for (const Types* list : {&s.in, &s.out})
    for (const TensorType& t : *list)
      if (is_16bit(t.dtype)) return fmt::format("takes no {}", to_string(t.dtype));
  return check_types(s);
}

// --- loops: elementwise, cast, broadcast, full, reductions, fused ---------------------------------------------------

std::string accepts_loop(const Site& s) {
  if (std::string reason = check_types(s); !reason.empty()) return reason;
  std::string reason;
  const auto program = lower_loop(s.node, s.in, &reason);
  if (!program) return reason;
  for (const LoopSection* section : {&program->map, &program->tail})
    for (const ScalarInstr& i : section->instrs)
      if (std::string why = check_type(s.target, i.dtype); !why.empty()) return why;
  return "";
}

LoopNest nest_of(const Site& s) {
  auto program = lower_loop(s.node, s.in);
  LATHE_CHECK(program, "{} was not accepted", s.node.op->name());
  return make_nest(*program);
}

int64_t loop_bytes(const Site& s) { return loop_workspace(nest_of(s)); }

std::vector<KernelCall> calls_of_loop(const Site& s, const ProductTiles& tiles) {
  return loop_calls(nest_of(s), tiles.style, tiles.loop_items);
}

// --- products: matmul, convolution, and fused nodes with one of them ------------------------------------------------

template <ConvPass pass>
std::vector<Product> conv_products(const Site& s) {
  return conv2d_products(pass, s.in[0], s.in[1], s.node.get<Conv2dParams>());
}
std::vector<Product> matmul_products(const Site& s) {
  return {matmul_product(s.out[0].dtype, s.in[0].shape, s.in[1].shape, s.node.get<MatmulParams>())};
}

template <std::vector<Product> (*products)(const Site&)>
int64_t product_bytes(const Site& s) {
  int64_t bytes = 0;
  for (const Product& p : products(s)) bytes = std::max(bytes, product_workspace(p));
  return bytes;
}

template <std::vector<Product> (*products)(const Site&)>
std::vector<KernelCall> calls_of_products(const Site& s, const ProductTiles& tiles) {
  std::vector<KernelCall> calls;
  for (const Product& p : products(s))
    for (KernelCall& call : product_calls(p, tiles)) calls.push_back(std::move(call));
  return calls;
}

template <std::vector<Product> (*products)(const Site&)>
NodeKind product_kind(std::string_view name, std::string_view op) {
  return {name, check_wide_types, product_bytes<products>, calls_of_products<products>, {}, {op}};
}

std::string accepts_chain(const Site& s) {
  if (std::string reason = check_types(s); !reason.empty()) return reason;
  std::string reason;
  const auto chain = product_chain(s.node.get<FusedParams>(), &reason);
  if (!chain) return reason;
  if (is_16bit(chain->product.dtype)) return fmt::format("takes no product in {}", to_string(chain->product.dtype));
  for (const Node& n : s.node.get<FusedParams>().body->nodes)
    for (const TensorType& t : s.node.get<FusedParams>().body->types_of(n.outputs))
      if (std::string why = check_type(s.target, t.dtype); !why.empty()) return why;
  return "";
}

ProductChain chain_of(const Site& s) {
  std::string reason;
  auto chain = product_chain(s.node.get<FusedParams>(), &reason);
  LATHE_CHECK(chain, "{}", reason);
  return std::move(*chain);
}
int64_t chain_bytes(const Site& s) { return chain_workspace(chain_of(s)); }
std::vector<KernelCall> calls_of_chain(const Site& s, const ProductTiles& tiles) {
  return chain_calls(chain_of(s), tiles);
}

// --- attention ------------------------------------------------------------------------------------------------------

std::string accepts_attention(const Site& s) {
  if (std::string reason = check_wide_types(s); !reason.empty()) return reason;
  return attention_reason(s.in);
}
std::vector<KernelCall> calls_of_attention(const Site& s, const ProductTiles& tiles) {
  return attention_calls(s.node, s.in, s.out, tiles);
}

// --- pooling --------------------------------------------------------------------------------------------------------

std::vector<KernelCall> calls_of_pool(const Site& s, const ProductTiles& tiles) {
  return pool_calls(s.node, s.in, s.out, tiles.style);
}

// --- by index, and strided copies -----------------------------------------------------------------------------------

std::string accepts_index(const Site& s) {
  if (s.node.is("scatter_add") && s.in[1].dtype == DType::u8) return "u8 sums would wrap";
  return s.node.is("gather") ? check_types(s) : check_wide_types(s);
}

std::vector<KernelCall> calls_of_index(const Site& s, const ProductTiles& tiles) {
  return index_calls(s.node, s.in, s.out, tiles.style);
}

std::vector<KernelCall> calls_of_copy(const Site& s, const ProductTiles& tiles) {
  return copy_calls(s.node, s.in, s.out, tiles.style);
}

// --- 16-bit floats on the texts of f32 ------------------------------------------------------------------------------

// The first kind that takes the op in f32.
const NodeKind* wide_kind(const Site& wide) {
  for (const NodeRow& row : node_rows())
    if (row.op == wide.node.op->name() && node_kinds()[row.kind].accepts(wide).empty()) return &node_kinds()[row.kind];
  return nullptr;
}

std::string accepts_widened(const Site& s) {
  if (!has_16bit(s)) return "for the 16-bit floats only";
  if (std::string reason = check_types(s); !reason.empty()) return reason;
  return wide_kind(wide_site(s)) ? "" : "no kernel in f32";
}
int64_t wide_kind_bytes(const Site& wide) {
  const NodeKind* kind = wide_kind(wide);
  return kind->workspace ? kind->workspace(wide) : 0;
}
int64_t widened_bytes(const Site& s) { return widened_workspace(s, wide_kind_bytes(wide_site(s))); }
std::vector<KernelCall> calls_of_widened(const Site& s, const ProductTiles& tiles) {
  const Site wide = wide_site(s);
  return widened_calls(s, wide_kind_bytes(wide), wide_kind(wide)->calls(wide, tiles), tiles.style);
}

std::string accepts_widened_chain(const Site& s) {
  if (std::string reason = check_types(s); !reason.empty()) return reason;
  std::string reason;
  const auto chain = narrow_chain(s, &reason);
  return chain ? accepts_widened(chain->head_site(s)) : reason;
}
int64_t widened_chain_bytes(const Site& s) {
  std::string reason;
  const auto chain = narrow_chain(s, &reason);
  return narrow_chain_workspace(*chain, widened_bytes(chain->head_site(s)));
}
std::vector<KernelCall> calls_of_widened_chain(const Site& s, const ProductTiles& tiles) {
  std::string reason;
  const auto chain = narrow_chain(s, &reason);
  const Site head = chain->head_site(s);
  return narrow_chain_calls(*chain, widened_bytes(head), calls_of_widened(head, tiles), tiles.style);
}

}  // namespace

const std::array<NodeKind, kNodeKinds>& node_kinds() {
  static const std::array<NodeKind, kNodeKinds> kinds{{
      // And every row of the elementwise table.
      {"loop",
       accepts_loop,
       loop_bytes,
       calls_of_loop,
       {"cast", "broadcast", "full", "reduce_sum", "reduce_max", "fused"}},
      product_kind<matmul_products>("matmul", "matmul"),
      product_kind<conv_products<ConvPass::forward>>("conv", "conv2d"),
      product_kind<conv_products<ConvPass::dx>>("conv_dx", "conv2d_dx"),
      product_kind<conv_products<ConvPass::dw>>("conv_dw", "conv2d_dw"),
      {"product_chain", accepts_chain, chain_bytes, calls_of_chain, {"fused"}},
      {"pool",
       check_wide_types,
       nullptr,
       calls_of_pool,
       {},
       {"max_pool", "max_pool_grad", "max_pool_pick", "avg_pool", "avg_pool_grad"}},
      {"index",
       accepts_index,
       nullptr,
       calls_of_index,
       {"iota", "gather", "random_uniform"},
       {"arg_max", "scatter_add"}},
      {"copy", check_types, nullptr, calls_of_copy, {"transpose", "slice", "pad", "concat", "reshape"}},
      {"attention", accepts_attention, nullptr, calls_of_attention, {}, {"attention", "attention_grad"}},
      // Of the wide_ops of the others.
      {"widened", accepts_widened, widened_bytes, calls_of_widened},
      {"widened_chain", accepts_widened_chain, widened_chain_bytes, calls_of_widened_chain, {"fused"}},
  }};
  return kinds;
}

std::vector<std::string> node_kernel_names(std::string_view backend) {
  std::vector<std::string> out;
  for (const NodeKind& k : node_kinds()) out.push_back(fmt::format("{}_{}", backend, k.name));
  return out;
}

std::vector<NodeRow> node_rows() {
  std::vector<NodeRow> rows;
  for (const OpDef* op : elementwise_ops()) rows.push_back({op->name(), 0});
  for (size_t kind = 0; kind < kNodeKinds; ++kind)
    for (const auto* ops : {&node_kinds()[kind].ops, &node_kinds()[kind].wide_ops})
      for (const std::string_view op : *ops) rows.push_back({op, kind});
  const auto widened =
      static_cast<size_t>(std::ranges::find(node_kinds(), "widened", &NodeKind::name) - node_kinds().begin());
  for (const NodeKind& kind : node_kinds())
    for (const std::string_view op : kind.wide_ops) rows.push_back({op, widened});
  return rows;
}

namespace {
std::vector<Product> direct_products(const Site& s) {
  const Site wide = wide_site(s);
  std::vector<Product> products;
  if (s.node.is("matmul"))
    products = matmul_products(wide);
  else if (s.node.is("conv2d"))
    products = conv_products<ConvPass::forward>(wide);
  else if (s.node.is("conv2d_dx"))
    products = conv_products<ConvPass::dx>(wide);
  else if (s.node.is("conv2d_dw"))
    products = conv_products<ConvPass::dw>(wide);
  else
    LATHE_CHECK(false, "{} is no product", s.node.op->name());
  const DType t = s.out[0].dtype;
  if (is_16bit(t))
    for (Product& p : products) {
      p.stored = t;
      p.c.dtype = p.a.dtype = p.b.dtype = t;
    }
  return products;
}
}  // namespace

namespace {
bool is_attention(const Site& s) { return s.node.is("attention") || s.node.is("attention_grad"); }
}  // namespace

std::string direct_reason(const Site& s) {
  if (std::string reason = check_types(s); !reason.empty()) return reason;
  return is_attention(s) ? attention_reason(s.in) : "";
}

int64_t direct_workspace(const Site& s) { return is_attention(s) ? 0 : product_bytes<direct_products>(s); }

std::vector<KernelCall> direct_calls(const Site& s, const ProductTiles& tiles) {
  return is_attention(s) ? calls_of_attention(s, tiles) : calls_of_products<direct_products>(s, tiles);
}

std::vector<KernelCall> node_calls(const Site& s, const ProductTiles& tiles) {
  for (const NodeRow& row : node_rows())
    if (row.op == s.node.op->name() && node_kinds()[row.kind].accepts(s).empty())
      return node_kinds()[row.kind].calls(s, tiles);
  LATHE_CHECK(false, "no text for {}", s.node.op->name());
  return {};
}

}  // namespace lathe
