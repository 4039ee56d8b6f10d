#include "passes/fuse/fuse_groups.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "ops/broadcast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "passes/fuse/fuse_gradients.h"
#include "passes/fuse/fuse_partition.h"

namespace lathe {
namespace {

constexpr int kMaxInstrs = 160;  // of one loop: kernels keep the values of a point in registers
constexpr int kMaxSinking = 64;  // nodes looked at when a node would be computed later
constexpr int32_t kNear = 8;     // levels: how long a value may wait for others to be computed with it

using Group = FusePartition::Group;

int count_instrs(const ScalarExpr& e) {
  return static_cast<int>(std::ranges::count_if(e.instrs, [](const ScalarInstr& i) { return i.op != ScalarOp::arg; }));
}

// Cheaper to compute than to store and to read.
bool is_cheap(const ScalarExpr& e) {
  return std::ranges::none_of(e.instrs, [](const ScalarInstr& i) {
    switch (i.op) {
      case ScalarOp::div:
      case ScalarOp::pow:
      case ScalarOp::exp:
      case ScalarOp::expm1:
      case ScalarOp::log:
      case ScalarOp::log1p:
      case ScalarOp::sqrt:
      case ScalarOp::rsqrt:
      case ScalarOp::tanh:
      case ScalarOp::sigmoid:
      case ScalarOp::erf:
      case ScalarOp::sin:
      case ScalarOp::cos: return true;
      default: return false;
    }
  });
}

class Grouping {
 public:
  Grouping(FuseGraph& f, const Target& target)
      : f_(f),
        max_inputs_(static_cast<size_t>(target.fuse_max_inputs)),
        gradient_columns_(target.gradient_epilogues),
        parts_(f),
        in_tail_(f.g.nodes.size(), false),
        mark_(f.g.nodes.size(), 0) {
    for (int32_t i = 0; i < size(); ++i)
      if (f.live[at(i)]) start(i);
  }

  std::vector<FuseGroup> run() {
    for (int32_t i = size(); i-- > 0;)
      if (f_.live[at(i)] && (f_.node(i).is("matmul") || f_.node(i).is("conv2d"))) grow_epilogue(i);
    if (gradient_columns_ > 0) join_gradients(f_, parts_, gradient_columns_);
    // Consumers first: when a node is placed, everything behind it has been.
    std::vector<int32_t> order;
    for (int32_t i = size(); i-- > 0;)
      if (f_.live[at(i)]) order.push_back(i);
    std::ranges::stable_sort(order, std::greater{}, [&](int32_t i) { return f_.level[at(i)]; });
    for (int32_t p : order)
      if (parts_.of(p).kind == "loop") place(p);
    std::vector<FuseGroup> out;
    for (int32_t g : parts_.sorted()) out.push_back({parts_[g].kind, std::move(parts_[g].nodes)});
    return out;
  }

 private:
  int32_t size() const { return static_cast<int32_t>(f_.g.nodes.size()); }
  const TensorType& type(int32_t i) const { return f_.g.type(f_.node(i).outputs[0]); }
  ScalarExpr expr(int32_t i) const { return elementwise_expr(f_.node(i), f_.g.types_of(f_.node(i).inputs)); }

  void start(int32_t i) {
    const Node& n = f_.node(i);
    Group& w = parts_.of(i);
    if (n.op->has(kElementwise)) {
      w.kind = "loop";
      w.instrs = count_instrs(expr(i));
      w.domain = &type(i).shape;
    } else if (n.op->has(kReduction)) {
      w.domain = &f_.g.type(n.inputs[0]).shape;
      w.tail = &type(i).shape;
      // Sections are told apart by their shapes.
      if (*w.domain == *w.tail) return;
      w.kind = "loop";
      w.reduce = i;
    }
  }

  // ---- matmul and conv2d

  // The op, then nodes that each are the only reader of the one before.
  void grow_epilogue(int32_t op) {
    bool bias = false, residual = false;
    for (int32_t last = op;;) {
      if (f_.makes_output(last) || f_.readers[at(last)].size() != 1) return;
      const int32_t next = f_.readers[at(last)][0];
      if (!is_epilogue(op, last, next, bias, residual)) return;
      if (!parts_.merge({parts_.id(op), parts_.id(next)})) return;
      parts_.of(op).kind = f_.node(op).op->name();
      last = next;
    }
  }

  bool is_epilogue(int32_t op, int32_t last, int32_t next, bool& bias, bool& residual) const {
    const Node& n = f_.node(next);
    const ValueId z = f_.node(last).outputs[0];
    if (parts_.of(next).nodes.size() != 1 || !n.op->has(kElementwise) || type(next) != type(op)) return false;
    if (std::ranges::count(n.inputs, z) != 1) return false;
    if (n.inputs.size() == 1) return true;
    if (!n.is("add")) return false;
    const ValueId other = n.inputs[n.inputs[0] == z ? 1 : 0];
    const int32_t d = f_.def[at(other)];
    if (d >= 0 && f_.node(d).op == &full_op) return false;
    if (d >= 0 && f_.node(d).op == &broadcast_op) {
      const bool vector = f_.g.type(f_.node(d).inputs[0]).shape.ndim() == 1;
      return vector && !std::exchange(bias, true);
    }
    // A sum that updates its own operand would be written in place while the kernel still adds up products.
    if (f_.updates[at(n.outputs[0])] == other) return false;
    return !std::exchange(residual, true);
  }

  // ---- loops

  void place(int32_t p) {
    const Shape& shape = type(p).shape;
    std::vector<int32_t> candidates;
    for (int32_t r : f_.readers[at(p)]) {
      const int32_t c = parts_.id(r);
      const Group& w = parts_[c];
      if (w.kind != "loop" || (*w.domain != shape && (w.reduce < 0 || *w.tail != shape))) continue;
      if (std::ranges::find(candidates, c) == candidates.end()) candidates.push_back(c);
      if (candidates.size() == 16) break;
    }
    // The earliest first: others may depend on it.
    std::ranges::stable_sort(candidates, {}, [&](int32_t c) { return parts_.ready(parts_[c]); });
    for (size_t i = 1; i < candidates.size(); ++i)
      if (try_unite(candidates[0], candidates[i], p)) candidates.erase(candidates.begin() + static_cast<int64_t>(i--));
    if (candidates.size() > 1 && try_copy(p)) return;
    for (size_t i = 0; i < std::min<size_t>(candidates.size(), 2); ++i)
      if (try_join(candidates[i], p)) return;
  }

  // Several loops want p and no one else does: each computes it, if that is cheap and reads no more than p itself.
  bool try_copy(int32_t p) {
    if (f_.makes_output(p) || !f_.writers[at(p)].empty() || parts_.of(p).reduce >= 0 || !is_cheap(expr(p)))
      return false;
    const int instrs = parts_.of(p).instrs;
    const auto& sources = f_.sources[at(p)];
    std::vector<int32_t> groups;
    for (int32_t r : f_.readers[at(p)]) {
      const int32_t c = parts_.id(r);
      const Group& w = parts_[c];
      // The reader reads p itself, not a broadcast of it.
      const ValueId read = f_.node(r).op->has(kReduction) ? f_.node(r).inputs[0] : f_.node(r).outputs[0];
      if (w.kind != "loop" || f_.g.type(read).shape != type(p).shape) return false;
      if (std::ranges::find(groups, c) != groups.end()) continue;
      groups.push_back(c);
      int64_t more = 0;
      size_t count = w.inputs.size() - 1;
      for (ValueId v : sources)
        if (std::ranges::find(w.inputs, v) == w.inputs.end()) {
          more += f_.g.type(v).bytes();
          ++count;
        }
      if (w.instrs + instrs > kMaxInstrs || count > max_inputs_ || more > about(type(p).bytes()) || !sinks_well(w, p))
        return false;
    }
    const ValueId y = f_.node(p).outputs[0];
    f_.inline_node(p);
    for (int32_t c : groups) {
      Group& w = parts_[c];
      w.inputs.erase(y);
      for (ValueId v : sources)
        if (std::ranges::find(w.inputs, v) == w.inputs.end()) w.inputs.push_back(v);
      w.instrs += instrs;
    }
    parts_.of(p) = {};
    return true;
  }

  // Two loops that both read p become one, so that p can vanish into it or is read once.
  bool try_unite(int32_t a, int32_t b, int32_t p) {
    const Group &x = parts_[a], &y = parts_[b];
    if (*x.domain != *y.domain || *x.domain != type(p).shape || (x.reduce >= 0 && y.reduce >= 0)) return false;
    if (x.instrs + y.instrs > kMaxInstrs || std::abs(parts_.ready(x) - parts_.ready(y)) > kNear) return false;
    const bool linked = parts_.reads(a, b) || parts_.reads(b, a);
    // What one reads of the other might stand behind its reduction.
    if (linked && (x.reduce >= 0 || y.reduce >= 0)) return false;
    return parts_.inputs_together(x, y).size() <= max_inputs_ && parts_.merge({a, b});
  }

  // p becomes part of the loop; where others read it too, as one more output.
  bool try_join(int32_t c, int32_t p) {
    Group& w = parts_[c];
    if (w.instrs + parts_.of(p).instrs > kMaxInstrs) return false;
    bool inner = !f_.makes_output(p);  // nobody outside reads p
    bool map_reader = false, tail_reader = false;
    for (int32_t r : f_.readers[at(p)]) {
      if (parts_.id(r) != c)
        inner = false;
      else
        (in_tail_[at(r)] ? tail_reader : map_reader) = true;
    }
    bool tail = false;
    if (parts_.of(p).reduce >= 0) {
      if (w.reduce >= 0 || *w.domain != type(p).shape || !outputs_depend_on(w, p)) return false;
    } else if (*w.domain == type(p).shape) {
      if (tail_reader) return false;
    } else {
      // Behind the reduction, but not depending on it: it can only be used there.
      if (map_reader || !inner) return false;
      tail = true;
    }
    if (parts_.inputs_together(w, parts_.of(p)).size() > max_inputs_) return false;
    if (inner ? !sinks_well(w, p) : parts_.ready(w) > f_.level[at(p)] + kNear) return false;
    const bool reduces = parts_.of(p).reduce >= 0;
    const Shape* domain = parts_.of(p).domain;
    const size_t count = w.nodes.size();
    if (!parts_.merge({c, parts_.id(p)})) return false;
    if (reduces) {
      for (size_t i = 0; i < count; ++i) in_tail_[at(w.nodes[i])] = true;
      w.domain = domain;
    }
    in_tail_[at(p)] = tail;
    return true;
  }

  // A row or a column beside a tensor does not count.
  static int64_t about(int64_t bytes) { return bytes + bytes / 8; }

  // Computing p late keeps its inputs in memory instead of p: not where that is more.
  bool sinks_well(const Group& w, int32_t p) {
    const int32_t when = parts_.ready(w);
    return when <= f_.level[at(p)] + kNear || kept_bytes(w, p, when) <= about(type(p).bytes());
  }

  // Bytes that computing p together with w, at level `when`, keeps alive up to there.
  int64_t kept_bytes(const Group& w, int32_t p, int32_t when) {
    const int32_t inside = ++stamp_;
    mark_sinking(w, p, inside);
    const int32_t counted = ++stamp_;  // by node, over the marks of `inside`: those are not counted twice either
    int64_t kept = 0;
    std::vector<int32_t> open{p};
    while (!open.empty()) {
      const int32_t i = open.back();
      open.pop_back();
      for (ValueId v : f_.sources[at(i)]) {
        const int32_t d = f_.def[at(v)];
        if (d < 0 || mark_[at(d)] == counted) continue;
        const bool sinks = mark_[at(d)] == inside;
        mark_[at(d)] = counted;
        if (sinks) {
          open.push_back(d);
          continue;
        }
        const bool lives_anyway = f_.makes_output(d) || std::ranges::any_of(f_.readers[at(d)], [&](int32_t r) {
                                    return &parts_.of(r) == &w || (mark_[at(r)] < inside && f_.level[at(r)] >= when);
                                  });
        if (!lives_anyway) kept += f_.g.type(v).bytes();
      }
    }
    return kept;
  }

  // Marks elementwise nodes that only w and p need: they would sink with p.
  void mark_sinking(const Group& w, int32_t p, int32_t stamp) {
    std::priority_queue<int32_t> open;  // readers come before what they read
    const auto open_sources = [&](const ValueIds& sources) {
      for (ValueId v : sources)
        if (f_.def[at(v)] >= 0) open.push(f_.def[at(v)]);
    };
    mark_[at(p)] = stamp;
    open_sources(w.inputs);
    open_sources(f_.sources[at(p)]);
    for (int count = 0; !open.empty() && count < kMaxSinking;) {
      const int32_t d = open.top();
      open.pop();
      if (mark_[at(d)] == stamp) continue;
      const bool sinks = f_.node(d).op->has(kElementwise) && !f_.makes_output(d) &&
                         std::ranges::all_of(f_.readers[at(d)],
                                             [&](int32_t r) { return &parts_.of(r) == &w || mark_[at(r)] == stamp; });
      if (!sinks) continue;
      mark_[at(d)] = stamp;
      ++count;
      open_sources(f_.sources[at(d)]);
    }
  }

  // Everything that w gives away would stand behind the reduction p.
  bool outputs_depend_on(const Group& w, int32_t p) const {
    NodeIds nodes = w.nodes, depending{p};
    std::ranges::sort(nodes);
    for (int32_t i : nodes) {
      const bool depends = std::ranges::any_of(f_.sources[at(i)], [&](ValueId v) {
        return f_.def[at(v)] >= 0 && std::ranges::find(depending, f_.def[at(v)]) != depending.end();
      });
      if (depends)
        depending.push_back(i);
      else if (f_.makes_output(i) || std::ranges::any_of(f_.readers[at(i)], [&](int32_t r) {
                 return std::ranges::find(nodes, r) == nodes.end();
               }))
        return false;
    }
    return true;
  }

  FuseGraph& f_;
  const size_t max_inputs_;
  const int64_t gradient_columns_;
  FusePartition parts_;
  std::vector<bool> in_tail_;  // by node: behind its loop's reduction
  std::vector<int32_t> mark_;  // by node: scratch of kept_bytes
  int32_t stamp_ = 0;
};

}  // namespace

std::vector<FuseGroup> form_groups(FuseGraph& f, const Target& target) { return Grouping(f, target).run(); }

}  // namespace lathe
