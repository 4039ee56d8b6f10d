#include "backend/kernels/widened_calls.h"

#include <algorithm>

#include "backend/kernels/loop_calls.h"
#include "base/checked.h"
#include "ops/fused.h"

namespace lathe {
namespace {

constexpr int64_t kWidenedAlign = 256;

Types widened_types(const Types& types) {
  Types out = types;
  for (TensorType& t : out) t.dtype = compute_type(t.dtype);
  return out;
}

int64_t wide_bytes(const TensorType& t) {
  return is_16bit(t.dtype) ? round_up(checked_mul(t.numel(), 4, "widened: workspace"), kWidenedAlign) : 0;
}

// Where a widened tensor lies in the workspace, in f32 elements.
struct WidePlace {
  CallArg::Kind kind;
  int index;
  TensorType type;
  int64_t at;
};

std::vector<WidePlace> places(const Site& s, int64_t bytes) {
  std::vector<WidePlace> out;
  int64_t at = round_up(bytes, kWidenedAlign);
  const auto take = [&](CallArg::Kind kind, const Types& types) {
    for (size_t i = 0; i < types.size(); ++i) {
      if (is_16bit(types[i].dtype)) out.push_back({kind, static_cast<int>(i), types[i], at / 4});
      at += wide_bytes(types[i]);
    }
  };
  take(CallArg::Kind::in, s.in);
  take(CallArg::Kind::out, s.out);
  return out;
}

// One pass over a dense tensor.
std::vector<KernelCall> convert_calls(const LoopAccess& from, const LoopAccess& to, int64_t numel, LaunchStyle style) {
  LoopNest n;
  n.kept = {numel};
  n.reads = {from};
  n.writes = {to};
  for (auto* list : {&n.reads, &n.writes}) (*list)[0].kept = {1};
  n.map = {{.op = ScalarOp::arg, .a = 0}};
  n.map_stores = {0};
  return loop_calls(n, style);
}

}  // namespace

bool has_16bit(const Site& s) {
  const auto narrow = [](const TensorType& t) { return is_16bit(t.dtype); };
  return std::ranges::any_of(s.in, narrow) || std::ranges::any_of(s.out, narrow);
}

Site wide_site(const Site& s) { return {s.node, widened_types(s.in), widened_types(s.out), s.target}; }

int64_t widened_workspace(const Site& s, int64_t bytes) {
  int64_t total = round_up(bytes, kWidenedAlign);
  for (const Types* types : {&s.in, &s.out})
    for (const TensorType& t : *types) total = checked_add(total, wide_bytes(t), "widened: workspace");
  return total;
}

std::vector<KernelCall> widened_calls(const Site& s, int64_t bytes, std::vector<KernelCall> wide, LaunchStyle style) {
  const std::vector<WidePlace> moved = places(s, bytes);
  std::vector<KernelCall> calls;
  const auto append = [&](std::vector<KernelCall> more) {
    for (KernelCall& c : more) calls.push_back(std::move(c));
  };
  for (const WidePlace& p : moved)
    if (p.kind == CallArg::Kind::in)
      append(convert_calls({p.type.dtype, p.index, 0, {}, {}}, {DType::f32, kWorkspaceBuffer, p.at, {}, {}},
                           p.type.numel(), style));
  for (KernelCall& c : wide)
    for (CallArg& a : c.args)
      for (const WidePlace& p : moved)
        if (a.kind == p.kind && a.index == p.index) {
          a = workspace_arg(DType::f32, p.at + a.value);
          break;
        }
  append(std::move(wide));
  for (const WidePlace& p : moved)
    if (p.kind == CallArg::Kind::out)
      append(convert_calls({DType::f32, kWorkspaceBuffer, p.at, {}, {}}, {p.type.dtype, p.index, 0, {}, {}},
                           p.type.numel(), style));
  return calls;
}

std::optional<NarrowChain> narrow_chain(const Site& s, std::string* reason) {
  const auto& p = s.node.get<FusedParams>();
  const Graph& g = *p.body;
  const auto decline = [&](std::string why) {
    *reason = std::move(why);
    return std::nullopt;
  };
  if (p.kind == "loop") return decline("a fused node of kind loop");
  const auto is_head = [&](const Node& n) { return n.is(p.kind); };
  if (std::ranges::count_if(g.nodes, is_head) != 1) return decline(fmt::format("not one {} in the body", p.kind));
  NarrowChain c;
  c.head = *std::ranges::find_if(g.nodes, is_head);
  const ValueId product = c.head.outputs[0];
  c.head_in = g.types_of(c.head.inputs);
  c.head_out = g.type(product);
  if (!is_16bit(c.head_out.dtype)) return decline("for 16-bit products only");
  for (const ValueId x : c.head.inputs) {
    const auto at = std::ranges::find(g.inputs, x, &Input::value);
    if (at == g.inputs.end()) return decline(fmt::format("an input of {} is computed in the body", p.kind));
    c.inputs.push_back(static_cast<int>(at - g.inputs.begin()));
  }
  Graph rest = g;
  std::erase_if(rest.nodes, is_head);
  rest.inputs.push_back({product, InputKind::batch, "product"});
  c.loop_input = static_cast<int>(g.inputs.size());
  auto loop = lower_loop(rest, reason);
  if (!loop) return std::nullopt;
  c.loop = std::move(*loop);
  return c;
}

namespace {
// The product's place: behind what the head and then the loop use.
int64_t product_at(const NarrowChain& c, int64_t head_bytes) {
  return round_up(std::max(head_bytes, loop_workspace(make_nest(c.loop))), kWidenedAlign);
}
}  // namespace

int64_t narrow_chain_workspace(const NarrowChain& c, int64_t head_bytes) {
  return product_at(c, head_bytes) + round_up(c.head_out.bytes(), kWidenedAlign);
}

std::vector<KernelCall> narrow_chain_calls(const NarrowChain& c, int64_t head_bytes, std::vector<KernelCall> head,
                                           LaunchStyle style) {
  const DType t = c.head_out.dtype;
  const int64_t at = product_at(c, head_bytes) / size_of(t);
  for (KernelCall& call : head)
    for (CallArg& a : call.args) {
      if (a.kind == CallArg::Kind::out)
        a = workspace_arg(t, at + a.value);
      else if (a.kind == CallArg::Kind::in)
        a.index = c.inputs[static_cast<size_t>(a.index)];
    }
  for (KernelCall& call : loop_calls(make_nest(c.loop), style)) {
    for (CallArg& a : call.args)
      if (a.kind == CallArg::Kind::in && a.index == c.loop_input) a = workspace_arg(t, at + a.value);
    head.push_back(std::move(call));
  }
  return head;
}

}  // namespace lathe
