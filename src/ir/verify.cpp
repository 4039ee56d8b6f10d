#include "ir/verify.h"

#include <algorithm>

#include "ir/name_set.h"
#include "ir/print.h"

namespace lathe {
namespace {

class Verifier {
 public:
  Verifier(const Graph& g, Level level, std::string_view after, MadeBy made_by)
      : g_(g), level_(level), after_(after), made_by_(made_by) {}

  void run() {
    defined_.assign(g_.types.size(), false);
    input_.assign(g_.types.size(), nullptr);
    NameSet names(g_.inputs.size());
    for (const Input& in : g_.inputs) {
      define(in.value, -1);
      input_[static_cast<size_t>(in.value)] = &in;
      if (!names.insert(in.name)) fail(-1, fmt::format("two inputs are named \"{}\"", in.name));
    }
    for (size_t i = 0; i < g_.nodes.size(); ++i) check_node(static_cast<int>(i));
    check_outputs();
    if (level_ == Level::lowered) check_donations();
  }

 private:
  void define(ValueId v, int at) {
    if (v < 0 || static_cast<size_t>(v) >= g_.types.size()) fail(at, fmt::format("value %{} has no type", v));
    if (defined_[static_cast<size_t>(v)]) fail(at, fmt::format("value %{} is defined twice", v));
    defined_[static_cast<size_t>(v)] = true;
  }

  bool is_defined(ValueId v) const {
    return v >= 0 && static_cast<size_t>(v) < g_.types.size() && defined_[static_cast<size_t>(v)];
  }

  void check_node(int i) {
    const Node& n = g_.nodes[static_cast<size_t>(i)];
    if (!n.op) fail(i, "node without an op");
    if (!n.params) fail(i, "node without parameters");
    if (n.params.type() != *n.op->params_type) fail(i, "node with parameters of another op");
    for (ValueId v : n.inputs)
      if (!is_defined(v)) fail(i, fmt::format("%{} is read before it is defined", v));
    const int arity = n.op->info.inputs;
    if (arity < 0 ? n.inputs.empty() : static_cast<int>(n.inputs.size()) != arity)
      fail(i, fmt::format("{} takes {} inputs, has {}", n.op->name(), arity, n.inputs.size()));
    if (level_ == Level::lowered && n.is("grad")) fail(i, "`grad` must be expanded by autodiff before this level");
    Types expected;
    in_.clear();
    for (ValueId v : n.inputs) in_.push_back(g_.type(v));
    try {
      expected = n.op->infer(in_, n.params.get());
    } catch (const UserError& e) {
      fail(i, fmt::format("the type rule refuses it: {}", e.what()));
    }
    for (ValueId v : n.outputs) define(v, i);
    const auto same = [&](const TensorType& t, ValueId v) { return t == g_.type(v); };
    if (!std::ranges::equal(expected, n.outputs, same))
      fail(i, fmt::format("output types differ from the type rule, which gives {}", types_text(expected)));
  }

  void check_outputs() {
    NameSet names[3] = {NameSet(g_.outputs.size()), NameSet(g_.outputs.size()), NameSet(g_.outputs.size())};  // by kind
    std::vector<bool> updated(g_.types.size(), false);
    for (const Output& o : g_.outputs) {
      if (!is_defined(o.value)) fail(-1, fmt::format("output \"{}\" is not defined", o.name));
      if (!names[static_cast<size_t>(o.kind)].insert(o.name))
        fail(-1, fmt::format("two outputs are named \"{}\"", o.name));
      if ((o.kind == OutputKind::state) != (o.updates >= 0))
        fail(-1, fmt::format("output \"{}\": state outputs, and only they, name an input", o.name));
      if (o.updates < 0) continue;
      const Input* in = is_defined(o.updates) ? input_[static_cast<size_t>(o.updates)] : nullptr;
      if (!in || !is_state(in->kind))
        fail(-1, fmt::format("output \"{}\" updates %{}, which is not a state input", o.name, o.updates));
      if (g_.type(o.value) != g_.type(o.updates))
        fail(-1, fmt::format("output \"{}\": {} updates {}", o.name, to_string(g_.type(o.value)),
                             to_string(g_.type(o.updates))));
      if (updated[static_cast<size_t>(o.updates)]) fail(-1, fmt::format("input \"{}\" is updated twice", in->name));
      if (in->name != o.name) fail(-1, fmt::format("output \"{}\" updates the input \"{}\"", o.name, in->name));
      updated[static_cast<size_t>(o.updates)] = true;
    }
  }

  // The new value takes the old one's storage: whoever reads the old value must stand before the writer (or be it).
  void check_donations() {
    const auto def = definitions(g_);
    const auto reads = readers(g_);
    for (const Output& o : g_.outputs) {
      if (o.updates < 0 || o.value == o.updates) continue;
      const int writer = def[static_cast<size_t>(o.value)];
      if (writer < 0) continue;  // another input's value: the plan copies it after the last node
      for (int32_t r : reads[static_cast<size_t>(o.updates)])
        if (r > writer) fail(r, fmt::format("%{} is read after its update %{} was written", o.updates, o.value));
    }
  }

  static std::string types_text(const Types& types) {
    std::vector<std::string> parts;
    for (const TensorType& t : types) parts.push_back(to_string(t));
    return fmt::format("({})", fmt::join(parts, ", "));
  }

  [[noreturn]] void fail(int at, const std::string& what) const {
    std::string text =
        fmt::format("graph \"{}\" is not valid{}{}: {}", g_.name, after_.empty() ? "" : " after pass ", after_, what);
    if (at >= 0) {
      const int first = std::max(0, at - 10), last = std::min(static_cast<int>(g_.nodes.size()), at + 11);
      for (int i = first; i < last; ++i)
        text += fmt::format("\n{} {}", i == at ? ">" : " ", print_node(g_, g_.nodes[static_cast<size_t>(i)]));
    }
    if (made_by_ == MadeBy::caller) throw UserError(text);
    throw InternalError(text);
  }

  const Graph& g_;
  Level level_;
  std::string_view after_;
  MadeBy made_by_;
  Types in_;  // of the node's inputs
  std::vector<bool> defined_;
  std::vector<const Input*> input_;  // by value; null: it is none
};

}  // namespace

void verify(const Graph& g, Level level, std::string_view after, MadeBy made_by) {
  Verifier(g, level, after, made_by).run();
}

void verify_order(const Graph& before, const Graph& now, std::string_view after, MadeBy made_by) {
  const auto same = [](const Node& a, const Node& b) {
    return a.op == b.op &&
           (a.params == b.params || equal(a.op->to_attrs(a.params.get()), b.op->to_attrs(b.params.get())));
  };
  size_t at = 0;
  for (const Node& n : before.nodes) {
    if (!n.op->has(kOrdered) || n.op->is_composite()) continue;
    while (at < now.nodes.size() && !same(n, now.nodes[at])) ++at;
    if (at++ < now.nodes.size()) continue;
    const std::string text =
        fmt::format("graph \"{}\" is not valid{}{}: ordered node {}{}{} was dropped or moved", now.name,
                    after.empty() ? "" : " after pass ", after, n.op->name(), n.origin.empty() ? "" : " of ", n.origin);
    if (made_by == MadeBy::caller) throw UserError(text);
    throw InternalError(text);
  }
}

}  // namespace lathe
