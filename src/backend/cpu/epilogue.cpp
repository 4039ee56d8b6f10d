#include "backend/cpu/epilogue.h"

#include <algorithm>

namespace lathe::cpu {
namespace {

class Finder {
 public:
  Finder(const Graph& body, std::string_view op)
      : g_(body), op_(op), def_(definitions(body)), readers_(lathe::readers(body)) {}

  std::optional<Chain> run(std::string* reason, ProductPlace place) {
    Chain c;
    if (!find_head(c, reason)) return std::nullopt;
    std::vector<bool> done(g_.nodes.size(), false);
    done[head_] = true;
    ValueId v = g_.nodes[head_].outputs[0];
    if (is_16bit(c.head_out.dtype) != (place == ProductPlace::workspace)) {
      *reason = fmt::format("takes no product in {}", to_string(c.head_out.dtype));
      return std::nullopt;
    }
    if (place == ProductPlace::workspace) {
      c.output = -1;
    } else {
      while (absorb(c, v, done)) {
      }
      c.output = output_for(v);
      if (c.output < 0) {
        *reason = "no output can hold the product";
        return std::nullopt;
      }
      if (g_.outputs.size() == 1 && g_.outputs[0].value == v) return c;
    }

    Graph rest = g_;
    rest.nodes.clear();
    for (size_t i = 0; i < g_.nodes.size(); ++i)
      if (!done[i]) rest.nodes.push_back(g_.nodes[i]);
    rest.inputs.push_back({v, InputKind::batch, "product"});
    c.loop = lower_loop(rest, reason);
    if (c.loop) *reason = Loop::unsupported(*c.loop);
    if (!reason->empty()) return std::nullopt;
    return c;
  }

 private:
  int input_position(ValueId v) const {
    for (size_t i = 0; i < g_.inputs.size(); ++i)
      if (g_.inputs[i].value == v) return static_cast<int>(i);
    return -1;
  }

  bool find_head(Chain& c, std::string* reason) {
    int found = 0;
    for (size_t i = 0; i < g_.nodes.size(); ++i)
      if (g_.nodes[i].is(op_)) {
        head_ = i;
        ++found;
      }
    if (found != 1) {
      *reason = fmt::format("{} nodes of {} in the body", found, op_);
      return false;
    }
    c.head = g_.nodes[head_];
    c.head_in = g_.types_of(c.head.inputs);
    c.head_out = g_.type(c.head.outputs[0]);
    for (ValueId x : c.head.inputs) {
      c.inputs.push_back(input_position(x));
      if (c.inputs.back() < 0) {
        *reason = fmt::format("an input of {} is computed in the body", op_);
        return false;
      }
    }
    return true;
  }

  bool is_output(ValueId v) const {
    return std::ranges::any_of(g_.outputs, [&](const lathe::Output& o) { return o.value == v; });
  }

  // Takes the next node of the chain into the epilogue (order: bias, residual, relu); v becomes its result.
  bool absorb(Chain& c, ValueId& v, std::vector<bool>& done) const {
    const auto& next = readers_[static_cast<size_t>(v)];
    if (next.size() != 1 || is_output(v) || c.relu) return false;
    const size_t at = static_cast<size_t>(next[0]);
    const Node& n = g_.nodes[at];
    if (n.is("relu")) {
      c.relu = true;
    } else if (n.is("add") && n.inputs[0] != n.inputs[1]) {
      const ValueId other = n.inputs[n.inputs[0] == v ? 1 : 0];
      const int position = input_position(other);
      if (position >= 0 && c.residual < 0) {
        c.residual = position;
      } else if (const int bias = bias_position(other); bias >= 0 && c.bias_col < 0 && c.residual < 0) {
        c.bias_col = bias;
      } else {
        return false;
      }
    } else {
      return false;
    }
    done[at] = true;
    v = n.outputs[0];
    return true;
  }

  // An input with one value per column, repeated over the rows.
  int bias_position(ValueId v) const {
    const int32_t d = def_[static_cast<size_t>(v)];
    if (d < 0 || !g_.nodes[static_cast<size_t>(d)].is("broadcast")) return -1;
    const ValueId source = g_.nodes[static_cast<size_t>(d)].inputs[0];
    const Shape& s = g_.type(source).shape;
    if (s.ndim() == 0 || s.numel() != s.dim(-1) || s.dim(-1) != g_.type(v).shape.dim(-1)) return -1;
    return input_position(source);
  }

  int output_for(ValueId v) const {
    int fits = -1;
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      if (g_.outputs[i].value == v) return static_cast<int>(i);
      if (fits < 0 && g_.type(g_.outputs[i].value) == g_.type(v)) fits = static_cast<int>(i);
    }
    return fits;
  }

  const Graph& g_;
  std::string_view op_;
  std::vector<int32_t> def_;
  std::vector<std::vector<int32_t>> readers_;
  size_t head_ = 0;
};

}  // namespace

std::optional<Chain> find_chain(const FusedParams& p, std::string_view op, std::string* reason, ProductPlace place) {
  reason->clear();
  if (p.kind != op) {
    *reason = fmt::format("a fused node of kind {}", p.kind);
    return std::nullopt;
  }
  return Finder(*p.body, op).run(reason, place);
}

}  // namespace lathe::cpu
