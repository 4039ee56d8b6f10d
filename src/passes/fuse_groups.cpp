#include "passes/fuse_groups.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <unordered_set>

#include "ops/broadcast.h"
#include "ops/elementwise.h"
#include "ops/full.h"

namespace lathe {
namespace {

size_t at(int32_t i) { return static_cast<size_t>(i); }

constexpr size_t kMaxNodes = 64;   // of one loop: kernels keep every value of a point in registers
constexpr int32_t kNear = 8;       // levels: how long a value may wait for others to be computed with it
constexpr int kSearchBudget = 400; // edges: a search that sees more counts as "there may be a path"

// A group under construction; at first, every node is one.
struct Work {
  std::string_view kind;
  std::vector<int32_t> nodes;
  std::vector<ValueId> inputs;  // read from outside
  int32_t reduce = -1;          // loops: the reduction among the nodes
  Shape domain;                 // loops: shape of everything before the reduction
  Shape tail;                   // loops with a reduction: shape of everything behind it
  size_t copies = 0;            // nodes computed here again
  int32_t min_level = 0, max_level = 0;
  size_t size() const { return nodes.size() + copies; }
};

// Cheaper to compute than to store and to read.
bool is_cheap(const Node& n, ArgTypes in) {
  if (!n.op->has(kElementwise)) return false;
  return std::ranges::none_of(elementwise_expr(n, in).instrs, [](const ScalarInstr& i) {
    switch (i.op) {
      case ScalarOp::div:
      case ScalarOp::pow:
      case ScalarOp::exp:
      case ScalarOp::log:
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
  Grouping(FuseGraph& f, int max_inputs)
      : f_(f), max_inputs_(static_cast<size_t>(max_inputs)), of_(f.g.nodes.size()), work_(f.g.nodes.size()),
        in_tail_(f.g.nodes.size(), false), seen_(f.g.nodes.size(), 0), mark_(f.g.nodes.size(), 0) {
    std::iota(of_.begin(), of_.end(), 0);
    for (int32_t i = 0; i < size(); ++i)
      if (f.live[at(i)]) start(i);
  }

  std::vector<FuseGroup> run() {
    for (int32_t i = size(); i-- > 0;)
      if (f_.live[at(i)] && (f_.node(i).is("matmul") || f_.node(i).is("conv2d"))) grow_epilogue(i);
    // Consumers first: when a node is placed, everything behind it has been.
    std::vector<int32_t> order;
    for (int32_t i = size(); i-- > 0;)
      if (f_.live[at(i)]) order.push_back(i);
    std::ranges::stable_sort(order, std::greater{}, [&](int32_t i) { return f_.level[at(i)]; });
    for (int32_t p : order)
      if (work_[at(of_[at(p)])].kind == "loop") place(p);
    return sorted();
  }

 private:
  int32_t size() const { return static_cast<int32_t>(f_.g.nodes.size()); }
  const TensorType& type(int32_t i) const { return f_.g.type(f_.node(i).outputs[0]); }
  Work& group(int32_t i) { return work_[at(of_[at(i)])]; }

  void start(int32_t i) {
    const Node& n = f_.node(i);
    Work& w = work_[at(i)];
    w.nodes = {i};
    w.inputs = f_.sources[at(i)];
    w.min_level = w.max_level = f_.level[at(i)];
    if (n.op->has(kElementwise)) {
      w.kind = "loop";
      w.domain = type(i).shape;
    } else if (n.op->has(kReduction)) {
      w.domain = f_.g.type(n.inputs[0]).shape;
      w.tail = type(i).shape;
      // Sections are told apart by their shapes.
      if (w.domain == w.tail) return;
      w.kind = "loop";
      w.reduce = i;
    }
  }

  // ---- matmul and conv2d

  // The op, then nodes that each are the only reader of the one before: no path can leave and come back, except over a
  // state write.
  void grow_epilogue(int32_t op) {
    bool bias = false, residual = false;
    for (int32_t last = op;;) {
      if (f_.makes_output(last) || f_.readers[at(last)].size() != 1) return;
      const int32_t next = f_.readers[at(last)][0];
      if (!is_epilogue(op, last, next, bias, residual)) return;
      Work& w = group(op);
      for (int32_t i : w.nodes)
        for (int32_t writer : f_.writers[at(i)])
          if (writer != next && reaches({writer}, next, of_[at(op)])) return;
      w.kind = f_.node(op).op->name();
      absorb(of_[at(op)], of_[at(next)]);
      last = next;
    }
  }

  bool is_epilogue(int32_t op, int32_t last, int32_t next, bool& bias, bool& residual) const {
    const Node& n = f_.node(next);
    const ValueId z = f_.node(last).outputs[0];
    if (work_[at(of_[at(next)])].nodes.size() != 1 || !n.op->has(kElementwise) || type(next) != type(op)) return false;
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
      const int32_t c = of_[at(r)];
      const Work& w = work_[at(c)];
      if (w.kind != "loop" || (w.domain != shape && (w.reduce < 0 || w.tail != shape))) continue;
      if (std::ranges::find(candidates, c) == candidates.end()) candidates.push_back(c);
      if (candidates.size() == 16) break;
    }
    // The earliest first: others may depend on it.
    std::ranges::stable_sort(candidates, {}, [&](int32_t c) { return ready(work_[at(c)]); });
    for (size_t i = 1; i < candidates.size(); ++i)
      if (try_unite(candidates[0], candidates[i], p)) candidates.erase(candidates.begin() + static_cast<int64_t>(i--));
    if (candidates.size() > 1 && try_copy(p)) return;
    for (size_t i = 0; i < std::min<size_t>(candidates.size(), 2); ++i)
      if (try_join(candidates[i], p)) return;
  }

  // Several loops want p and no one else does: each computes it, if that is cheap and reads no more than p itself.
  bool try_copy(int32_t p) {
    if (f_.makes_output(p) || !f_.writers[at(p)].empty()) return false;
    if (!is_cheap(f_.node(p), f_.g.types_of(f_.node(p).inputs))) return false;
    const auto& sources = f_.sources[at(p)];
    std::vector<int32_t> groups;
    for (int32_t r : f_.readers[at(p)]) {
      const int32_t c = of_[at(r)];
      const Work& w = work_[at(c)];
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
      if (w.size() >= kMaxNodes || count > max_inputs_ || more > about(type(p).bytes()) || !sinks_well(w, p)) return false;
    }
    const ValueId y = f_.node(p).outputs[0];
    f_.inline_node(p);
    for (int32_t c : groups) {
      Work& w = work_[at(c)];
      std::erase(w.inputs, y);
      for (ValueId v : sources)
        if (std::ranges::find(w.inputs, v) == w.inputs.end()) w.inputs.push_back(v);
      ++w.copies;
    }
    group(p) = {};
    return true;
  }

  // Two loops that both read p become one, so that p can vanish into it or is read once.
  bool try_unite(int32_t a, int32_t b, int32_t p) {
    const Work &x = work_[at(a)], &y = work_[at(b)];
    if (x.domain != y.domain || x.domain != type(p).shape || (x.reduce >= 0 && y.reduce >= 0)) return false;
    if (x.size() + y.size() > kMaxNodes || std::abs(ready(x) - ready(y)) > kNear) return false;
    const bool linked = reads(a, b) || reads(b, a);
    // What one reads of the other might stand behind its reduction.
    if (linked && (x.reduce >= 0 || y.reduce >= 0)) return false;
    if (inputs_together(x, y).size() > max_inputs_) return false;
    if (reaches(successors(x, a, b), b, a) || reaches(successors(y, a, b), a, b)) return false;
    absorb(a, b);
    return true;
  }

  bool try_join(int32_t c, int32_t p) {
    Work& w = work_[at(c)];
    if (w.size() + group(p).size() > kMaxNodes) return false;
    bool inner = !f_.makes_output(p);  // nobody outside reads p
    bool map_reader = false, tail_reader = false;
    for (int32_t r : f_.readers[at(p)]) {
      if (of_[at(r)] != c) inner = false;
      else (in_tail_[at(r)] ? tail_reader : map_reader) = true;
    }
    bool tail = false;
    if (group(p).reduce >= 0) {
      if (w.reduce >= 0 || w.domain != type(p).shape || !outputs_depend_on(w, p)) return false;
    } else if (w.domain == type(p).shape) {
      if (tail_reader) return false;
    } else {
      // Behind the reduction, but not depending on it: it can only be used there.
      if (map_reader || !inner) return false;
      tail = true;
    }
    if (inputs_together(w, group(p)).size() > max_inputs_) return false;
    if (inner ? !sinks_well(w, p) : ready(w) > f_.level[at(p)] + kNear) return false;
    std::vector<int32_t> out;
    for (const auto* list : {&f_.readers[at(p)], &f_.writers[at(p)]})
      for (int32_t s : *list)
        if (of_[at(s)] != c) out.push_back(s);
    if (reaches(out, c, of_[at(p)])) return false;
    if (group(p).reduce >= 0) {
      for (int32_t i : w.nodes) in_tail_[at(i)] = true;
      w.tail = w.domain;
      w.domain = group(p).domain;
      w.reduce = p;
    }
    in_tail_[at(p)] = tail;
    absorb(c, of_[at(p)]);
    return true;
  }

  // A row or a column beside a tensor does not count.
  static int64_t about(int64_t bytes) { return bytes + bytes / 8; }

  // The level from which on all inputs exist.
  int32_t ready(const Work& w) const {
    int32_t r = 0;
    for (ValueId v : w.inputs) r = std::max(r, f_.level_of(v));
    return r;
  }

  // Computing p late keeps its inputs in memory instead of p: not where that is more.
  bool sinks_well(const Work& w, int32_t p) {
    const int32_t when = ready(w);
    return when <= f_.level[at(p)] + kNear || kept_bytes(w, p, when) <= about(type(p).bytes());
  }

  // Bytes that computing p together with w, at level `when`, keeps alive up to there.
  int64_t kept_bytes(const Work& w, int32_t p, int32_t when) {
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
          return &group(r) == &w || (mark_[at(r)] < inside && f_.level[at(r)] >= when);
        });
        if (!lives_anyway) kept += f_.g.type(v).bytes();
      }
    }
    return kept;
  }

  // Marks elementwise nodes that only w and p need: they would sink with p.
  void mark_sinking(const Work& w, int32_t p, int32_t stamp) {
    std::priority_queue<int32_t> open;  // readers come before what they read
    const auto open_sources = [&](const std::vector<ValueId>& sources) {
      for (ValueId v : sources)
        if (f_.def[at(v)] >= 0) open.push(f_.def[at(v)]);
    };
    mark_[at(p)] = stamp;
    open_sources(w.inputs);
    open_sources(f_.sources[at(p)]);
    for (size_t count = 0; !open.empty() && count < kMaxNodes;) {
      const int32_t d = open.top();
      open.pop();
      if (d != p && mark_[at(d)] == stamp) continue;
      const bool sinks = f_.node(d).op->has(kElementwise) && !f_.makes_output(d) &&
                         std::ranges::all_of(f_.readers[at(d)], [&](int32_t r) {
                           return &group(r) == &w || mark_[at(r)] == stamp;
                         });
      if (!sinks) continue;
      mark_[at(d)] = stamp;
      ++count;
      open_sources(f_.sources[at(d)]);
    }
  }

  bool outputs_depend_on(const Work& w, int32_t p) const {
    std::vector<int32_t> nodes = w.nodes, depending{p};
    std::ranges::sort(nodes);
    for (int32_t i : nodes) {
      const bool depends = std::ranges::any_of(f_.sources[at(i)], [&](ValueId v) {
        return f_.def[at(v)] >= 0 && std::ranges::find(depending, f_.def[at(v)]) != depending.end();
      });
      if (depends) depending.push_back(i);
      else if (f_.makes_output(i) || std::ranges::any_of(f_.readers[at(i)], [&](int32_t r) {
                 return std::ranges::find(nodes, r) == nodes.end();
               }))
        return false;
    }
    return true;
  }

  bool reads(int32_t reader, int32_t writer) const {
    return std::ranges::any_of(work_[at(reader)].inputs, [&](ValueId v) {
      return f_.def[at(v)] >= 0 && of_[at(f_.def[at(v)])] == writer;
    });
  }

  std::vector<ValueId> inputs_together(const Work& a, const Work& b) const {
    std::vector<ValueId> out;
    const auto inside = [&](const Work& w, int32_t d) { return d >= 0 && &work_[at(of_[at(d)])] == &w; };
    for (const Work* w : {&a, &b})
      for (ValueId v : w->inputs)
        if (!inside(a, f_.def[at(v)]) && !inside(b, f_.def[at(v)]) && std::ranges::find(out, v) == out.end())
          out.push_back(v);
    return out;
  }

  void absorb(int32_t a, int32_t b) {
    Work &x = work_[at(a)], &y = work_[at(b)];
    x.inputs = inputs_together(x, y);
    x.nodes.insert(x.nodes.end(), y.nodes.begin(), y.nodes.end());
    x.copies += y.copies;
    x.min_level = std::min(x.min_level, y.min_level);
    x.max_level = std::max(x.max_level, y.max_level);
    if (x.reduce < 0 && y.reduce >= 0) {
      x.reduce = y.reduce;
      x.tail = y.tail;
    }
    for (int32_t i : y.nodes) of_[at(i)] = a;
    y = {};
  }

  std::vector<int32_t> successors(const Work& w, int32_t a, int32_t b) const {
    std::vector<int32_t> out;
    for (int32_t i : w.nodes)
      for (const auto* list : {&f_.readers[at(i)], &f_.writers[at(i)]})
        for (int32_t s : *list)
          if (of_[at(s)] != a && of_[at(s)] != b) out.push_back(s);
    return out;
  }

  // Is there (or may there be) a path from one of the nodes to the group that does not pass `without`?
  bool reaches(const std::vector<int32_t>& from, int32_t target, int32_t without) {
    ++stamp_;
    int budget = kSearchBudget;
    std::vector<int32_t> open;
    const auto visit = [&](int32_t node) {
      const int32_t c = of_[at(node)];
      if (c == target || --budget < 0) return true;
      // Levels rise along every edge: a group that lies wholly above the target cannot lead to it.
      if (seen_[at(c)] == stamp_ || c == without || work_[at(c)].min_level >= work_[at(target)].max_level) return false;
      seen_[at(c)] = stamp_;
      open.push_back(c);
      return false;
    };
    for (int32_t node : from)
      if (visit(node)) return true;
    while (!open.empty()) {
      const int32_t c = open.back();
      open.pop_back();
      for (int32_t i : work_[at(c)].nodes)
        for (const auto* list : {&f_.readers[at(i)], &f_.writers[at(i)]})
          for (int32_t s : *list)
            if (of_[at(s)] != c && visit(s)) return true;
    }
    return false;
  }

  // ---- the result

  std::vector<FuseGroup> sorted() {
    std::vector<int32_t> waits(work_.size(), 0), last(work_.size(), -1);
    const auto for_edges = [&](int32_t c, auto&& f) {
      for (int32_t i : work_[at(c)].nodes)
        for (const auto* list : {&f_.readers[at(i)], &f_.writers[at(i)]})
          for (int32_t s : *list)
            if (of_[at(s)] != c) f(of_[at(s)]);
    };
    // Ties by place in the source: the order stays as near to it as it can.
    using Entry = std::pair<int32_t, int32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready_groups;
    size_t count = 0;
    for (int32_t c = 0; c < size(); ++c) {
      if (work_[at(c)].nodes.empty()) continue;
      ++count;
      std::ranges::sort(work_[at(c)].nodes);
      last[at(c)] = work_[at(c)].nodes.back();
      for_edges(c, [&](int32_t s) { ++waits[at(s)]; });
    }
    for (int32_t c = 0; c < size(); ++c)
      if (!work_[at(c)].nodes.empty() && waits[at(c)] == 0) ready_groups.push({last[at(c)], c});
    std::vector<FuseGroup> out;
    out.reserve(count);
    while (!ready_groups.empty()) {
      const int32_t c = ready_groups.top().second;
      ready_groups.pop();
      for_edges(c, [&](int32_t s) {
        if (--waits[at(s)] == 0) ready_groups.push({last[at(s)], s});
      });
      Work& w = work_[at(c)];
      out.push_back({std::string(w.kind), std::move(w.nodes)});
    }
    LATHE_CHECK(out.size() == count, "fusing made a cycle: {} of {} groups are reachable", out.size(), count);
    return out;
  }

  FuseGraph& f_;
  const size_t max_inputs_;
  std::vector<int32_t> of_;    // by node: its group
  std::vector<Work> work_;
  std::vector<bool> in_tail_;  // by node: behind its loop's reduction
  std::vector<int32_t> seen_;  // by group: stamp of the last search that saw it
  std::vector<int32_t> mark_;  // by node: scratch of kept_bytes
  int32_t stamp_ = 0;
};

}  // namespace

std::vector<FuseGroup> form_groups(FuseGraph& f, int max_inputs) { return Grouping(f, max_inputs).run(); }

}  // namespace lathe
