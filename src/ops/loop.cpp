#include "ops/loop.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "ir/builder.h"
#include "ops/broadcast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/fused.h"
#include "ops/reduce.h"

namespace lathe {
namespace {

// Thrown inside and turned into `reason`.
struct NotALoop {
  std::string why;
};

class Lowering {
 public:
  explicit Lowering(const Graph& body) : g_(body) {}

  LoopProgram run() {
    find_domain();
    def_ = definitions(g_);
    depends_.assign(g_.types.size(), -1);
    for (auto& of_section : emitted_) of_section.assign(g_.types.size(), -1);
    if (reduce_) {
      const auto& p = reduce_->get<ReduceParams>();
      out_.reduce = reduce_->is("reduce_sum") ? LoopReduce::sum : LoopReduce::max;
      out_.axes = p.axes;
      out_.reduce_dtype = compute_type(g_.type(reduce_->outputs[0]).dtype);
      Ints kept = out_.domain.to_ints();
      for (int64_t a : p.axes) kept[static_cast<size_t>(a)] = 1;
      out_.reduced = Shape(kept);
      out_.reduce_instr = emit_operand(out_.map, reduce_->inputs[0], out_.domain, false);
    }
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const ValueId v = g_.outputs[i].value;
      const bool after = depends_on_reduce(v);
      const Shape& domain = after ? out_.reduced : out_.domain;
      if (g_.type(v).numel() != domain.numel() || (!after && g_.type(v).shape != domain))
        throw NotALoop{
            fmt::format("output {} is {}, the loop runs over {}", i, to_string(g_.type(v)), to_string(domain))};
      LoopSection& section = after ? out_.tail : out_.map;
      section.stores.push_back({emit(section, v, tail_shape(v, after), after), static_cast<int>(i), g_.type(v).dtype});
    }
    return std::move(out_);
  }

 private:
  // The common shape of everything that is not behind the reduction.
  void find_domain() {
    for (const Node& n : g_.nodes) {
      if (n.op->has(kReduction)) {
        if (reduce_) throw NotALoop{"more than one reduction"};
        reduce_ = &n;
      } else if (!n.op->has(kElementwise) && !n.is("broadcast") && !n.is("full")) {
        throw NotALoop{fmt::format("{} is not an elementwise node", n.op->name())};
      }
    }
    if (reduce_)
      out_.domain = g_.type(reduce_->inputs[0]).shape;
    else
      out_.domain = g_.type(g_.outputs.at(0).value).shape;
  }

  // Behind the reduction, values live over the reduced shape, with reduced axes kept as 1 or dropped.
  Shape tail_shape(ValueId v, bool after) const { return after ? g_.type(v).shape : out_.domain; }

  bool depends_on_reduce(ValueId v) {
    if (!reduce_) return false;
    const int32_t d = def_[static_cast<size_t>(v)];
    if (d < 0) return false;
    if (depends_[static_cast<size_t>(v)] >= 0) return depends_[static_cast<size_t>(v)] == 1;
    const Node& n = g_.nodes[static_cast<size_t>(d)];
    bool result = &n == reduce_;
    for (ValueId x : n.inputs) result = result || depends_on_reduce(x);
    depends_[static_cast<size_t>(v)] = result;
    return result;
  }

  // As emit, with the value as a reader of it in the graph would see it: rounded where its type has 16 bits.
  int32_t emit_operand(LoopSection& section, ValueId v, const Shape& domain, bool after) {
    const int32_t raw = emit(section, v, domain, after);
    const DType t = g_.type(v).dtype;
    if (!is_16bit(t)) return raw;
    if (is_exact(raw, after, t)) return raw;
    auto& rounded = rounded_[{raw, after, t}];
    if (rounded == 0) {
      rounded = 1 + push(section, {.op = t == DType::f16 ? ScalarOp::round_f16 : ScalarOp::round_bf16, .a = raw});
      set_exact(rounded - 1, after, t);
    }
    return rounded - 1;
  }

  // Emits the instructions for value v read over `domain`; in the tail, the domain's shape may drop the reduced axes.
  // 16-bit values come in f32, rounded or not: who stores them rounds, other readers take emit_operand.
  int32_t emit(LoopSection& section, ValueId v, const Shape& domain, bool after) {
    if (const int32_t known = emitted_[after][static_cast<size_t>(v)]; known >= 0) return known;
    const int32_t d = def_[static_cast<size_t>(v)];
    int32_t result;
    if (d < 0) {
      result = emit_read(section, v, domain, after);
    } else {
      const Node& n = g_.nodes[static_cast<size_t>(d)];
      if (&n == reduce_) {
        if (!after) throw NotALoop{"a value before the reduction depends on it"};
        const DType t = compute_type(g_.type(v).dtype);
        result = push(section, {.op = ScalarOp::arg, .a = kReducedArg, .dtype = t, .from = t});
        if (out_.reduce == LoopReduce::max) set_exact(result, after, g_.type(v).dtype);
      } else if (n.is("broadcast")) {
        if (after && depends_on_reduce(n.inputs[0]) && g_.type(n.inputs[0]).numel() != g_.type(v).numel())
          throw NotALoop{"the reduced value is broadcast again"};
        result = emit(section, n.inputs[0], domain, after);
      } else if (n.is("full")) {
        const auto& p = n.get<FullParams>();
        const DType t = compute_type(p.dtype);
        const double value = t == p.dtype ? p.value : round_to(p.dtype, p.value);
        result = push(section, {.op = ScalarOp::constant, .value = value, .dtype = t, .from = t});
        set_exact(result, after, p.dtype);
      } else {
        result = emit_elementwise(section, n, domain, after);
      }
    }
    emitted_[after][static_cast<size_t>(v)] = result;
    return result;
  }

  int32_t emit_elementwise(LoopSection& section, const Node& n, const Shape& domain, bool after) {
    std::vector<int32_t> args;
    for (ValueId x : n.inputs) args.push_back(emit_operand(section, x, domain, after));
    const ScalarExpr e = elementwise_expr(n, g_.types_of(n.inputs));
    std::vector<int32_t> at(e.instrs.size());
    for (size_t k = 0; k < e.instrs.size(); ++k) {
      ScalarInstr i = e.instrs[k];
      if (i.op == ScalarOp::arg) {
        at[k] = args[static_cast<size_t>(i.a)];
        continue;
      }
      const auto moved = [&](int32_t j) { return j < 0 ? j : at[static_cast<size_t>(j)]; };
      i.a = moved(i.a);
      i.b = moved(i.b);
      i.c = moved(i.c);
      i.dtype = compute_type(i.dtype);
      i.from = compute_type(i.from);
      if (i.op == ScalarOp::convert && i.dtype == i.from) {
        at[k] = i.a;  // between types of 16 bits, or from one to f32
        continue;
      }
      at[k] = push(section, i);
      if (k + 1 == e.instrs.size() && chooses(e)) set_exact(at[k], after, g_.type(n.outputs[0]).dtype);
    }
    return at.back();
  }

  // The result is an argument, zero, or the negative of one: it needs no rounding, as they need none.
  static bool chooses(const ScalarExpr& e) {
    const ScalarInstr& last = e.instrs.back();
    const auto plain = [&](int32_t k) {
      if (k < 0) return true;
      const ScalarInstr& i = e.instrs[static_cast<size_t>(k)];
      return i.op == ScalarOp::arg || (i.op == ScalarOp::constant && i.value == 0);
    };
    switch (last.op) {
      case ScalarOp::max:
      case ScalarOp::min:
      case ScalarOp::select:
      case ScalarOp::neg:
      case ScalarOp::abs: return plain(last.a) && plain(last.b) && plain(last.c);
      default: return false;
    }
  }

  int32_t emit_read(LoopSection& section, ValueId v, const Shape& domain, bool after) {
    int input = -1;
    for (size_t i = 0; i < g_.inputs.size(); ++i)
      if (g_.inputs[i].value == v) input = static_cast<int>(i);
    LATHE_CHECK(input >= 0);
    Ints strides;
    if (!after) {
      strides = broadcast_strides(g_.type(v).shape, domain);
    } else {
      // Strides over the tail's own shape, put back to the positions of the kept axes.
      const Ints own = broadcast_strides(g_.type(v).shape, domain);
      if (domain.ndim() == out_.reduced.ndim()) {
        strides = own;
      } else {
        size_t next = 0, axis = 0;
        for (int d = 0; d < out_.reduced.ndim(); ++d) {
          const bool reduced_axis = axis < out_.axes.size() && out_.axes[axis] == d;
          if (reduced_axis) ++axis;
          strides.push_back(reduced_axis || next >= own.size() ? 0 : own[next]);
          if (!reduced_axis) ++next;
        }
      }
    }
    const DType t = g_.type(v).dtype;
    section.reads.push_back({input, t, std::move(strides)});
    const int32_t result = push(section, {.op = ScalarOp::arg,
                                          .a = static_cast<int32_t>(section.reads.size() - 1),
                                          .dtype = compute_type(t),
                                          .from = compute_type(t)});
    set_exact(result, after, t);
    return result;
  }

  // The f32 of the instruction is a value of that type.
  bool is_exact(int32_t instr, bool after, DType t) const {
    const auto& list = exact_[after];
    return static_cast<size_t>(instr) < list.size() && list[static_cast<size_t>(instr)] == t;
  }
  void set_exact(int32_t instr, bool after, DType t) {
    auto& list = exact_[after];
    if (list.size() <= static_cast<size_t>(instr)) list.resize(static_cast<size_t>(instr) + 1);
    list[static_cast<size_t>(instr)] = t;
  }

  static int32_t push(LoopSection& section, ScalarInstr i) {
    section.instrs.push_back(i);
    return static_cast<int32_t>(section.instrs.size() - 1);
  }

  const Graph& g_;
  LoopProgram out_;
  const Node* reduce_ = nullptr;
  std::vector<int32_t> def_;
  std::vector<int8_t> depends_;                                  // by value: 0, 1, or -1 where it was not asked yet
  std::vector<int32_t> emitted_[2];                              // by section and value: its instruction, or -1
  std::vector<std::optional<DType>> exact_[2];                   // by section and instruction, as far as there are any
  std::map<std::tuple<int32_t, bool, DType>, int32_t> rounded_;  // an instruction rounded: its number + 1
};

}  // namespace

std::optional<LoopProgram> lower_loop(const Graph& body, std::string* reason) {
  try {
    return Lowering(body).run();
  } catch (const NotALoop& e) {
    if (reason) *reason = e.why;
    return std::nullopt;
  }
}

std::optional<LoopProgram> lower_loop(const Node& n, ArgTypes in, std::string* reason) {
  if (n.is("fused")) {
    const auto& p = n.get<FusedParams>();
    if (p.kind == "loop") return lower_loop(*p.body, reason);
    if (reason) *reason = fmt::format("a fused node of kind {}", p.kind);
    return std::nullopt;
  }
  Builder b("body");
  Values args;
  for (size_t i = 0; i < in.size(); ++i) args.push_back(b.input(in[i], InputKind::batch, "x" + std::to_string(i)));
  const Values out = b.add(*n.op, args, n.params);
  for (size_t i = 0; i < out.size(); ++i) b.output(out[i], OutputKind::result, "y" + std::to_string(i));
  return lower_loop(b.finish(), reason);
}

}  // namespace lathe
