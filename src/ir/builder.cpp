#include "ir/builder.h"

#include <algorithm>
#include <utility>

namespace lathe {
namespace {

// The one that two of them have, or null.
const std::string* find_twice(std::vector<const std::string*> names) {
  const auto less = [](const std::string* a, const std::string* b) { return *a < *b; };
  std::ranges::sort(names, less);
  const auto equal = [](const std::string* a, const std::string* b) { return *a == *b; };
  const auto it = std::ranges::adjacent_find(names, equal);
  return it == names.end() ? nullptr : *it;
}

}  // namespace

TensorType Value::type() const {
  const Graph& g = builder().graph();
  LATHE_USER_CHECK(id_ >= 0 && static_cast<size_t>(id_) < g.types.size(),
                   "value %{}: expected a value of the graph, which has {} (none after Builder::finish())", id_,
                   g.types.size());
  return g.type(id_);
}

ValueId Builder::own(Value v, std::string_view what) const {
  LATHE_USER_CHECK(v.valid(), "{}: expected a value of graph \"{}\", got one that names nothing (Value{{}})", what,
                   graph_.name);
  LATHE_USER_CHECK(&v.builder() == this, "{}: expected a value of graph \"{}\", got one of another Builder", what,
                   graph_.name);
  LATHE_USER_CHECK(v.id() >= 0 && static_cast<size_t>(v.id()) < graph_.types.size(),
                   "{}: expected a value of the graph, which has {} (none after Builder::finish()), got %{}", what,
                   graph_.types.size(), v.id());
  return v.id();
}

Value Builder::input(TensorType type, InputKind kind, std::string name) {
  const ValueId v = graph_.add_value(type);
  graph_.inputs.push_back({v, kind, std::move(name)});
  return value(v);
}

Values Builder::add(const OpDef& op, ArgValues inputs, ParamsPtr params) {
  Node node;
  node.op = &op;
  node.params = std::move(params);
  node.origin = origin_;
  node.role = role_;
  const bool any = op.info.inputs < 0;
  LATHE_USER_CHECK(any ? !inputs.empty() : static_cast<int>(inputs.size()) == op.info.inputs,
                   "{}: expected {} inputs, got {}", op.name(), any ? "any number of" : std::to_string(op.info.inputs),
                   inputs.size());
  LATHE_USER_CHECK(node.params && node.params.type() == *op.params_type,
                   "{}: expected parameters of the op's Params, got {}", op.name(),
                   node.params ? "another struct" : "none; make_params makes them");
  Types in;
  in.reserve(inputs.size());
  node.inputs.reserve(inputs.size());
  for (const Value& v : inputs) {
    node.inputs.push_back(own(v, op.name()));
    in.push_back(graph_.type(v.id()));
  }
  const Types out = op.infer(in, node.params.get());
  LATHE_USER_CHECK(!out.empty(), "{}: expected a result, got none of its infer() or expand()", op.name());
  Values values;
  values.reserve(out.size());
  for (const TensorType& t : out) {
    node.outputs.push_back(graph_.add_value(t));
    values.push_back(value(node.outputs.back()));
  }
  graph_.nodes.push_back(std::move(node));
  return values;
}

void Builder::output(Value v, OutputKind kind, std::string name) {
  const ValueId id = own(v, name);
  graph_.outputs.push_back({id, kind, std::move(name), -1});
}

// Inputs and outputs are only ever appended: a search per update would take the square of their number.
void Builder::note_state() {
  input_at_.resize(graph_.types.size(), -1);
  updated_.resize(graph_.types.size(), false);
  const auto exists = [&](ValueId v) { return v >= 0 && static_cast<size_t>(v) < graph_.types.size(); };
  for (; noted_inputs_ < graph_.inputs.size(); ++noted_inputs_)
    if (const ValueId v = graph_.inputs[noted_inputs_].value; exists(v))
      input_at_[static_cast<size_t>(v)] = static_cast<int32_t>(noted_inputs_);
  for (; noted_outputs_ < graph_.outputs.size(); ++noted_outputs_)
    if (const ValueId v = graph_.outputs[noted_outputs_].updates; exists(v)) updated_[static_cast<size_t>(v)] = true;
}

void Builder::update(Value state_input, Value new_value) {
  const ValueId old = own(state_input, "update"), now = own(new_value, "update");
  note_state();
  const int32_t at = input_at_[static_cast<size_t>(old)];
  LATHE_USER_CHECK(at >= 0, "update: expected a state input, got %{}, which is no input", old);
  const Input* in = &graph_.inputs[static_cast<size_t>(at)];
  LATHE_USER_CHECK(is_state(in->kind), "update of {}: expected a state input, got one of kind {}", in->name,
                   to_string(in->kind));
  LATHE_USER_CHECK(graph_.type(now) == graph_.type(old), "update of {}: expected {}, got {}", in->name,
                   to_string(graph_.type(old)), to_string(graph_.type(now)));
  LATHE_USER_CHECK(!updated_[static_cast<size_t>(old)], "update of {}: expected one update, got a second", in->name);
  graph_.outputs.push_back({now, OutputKind::state, in->name, old});
}

Graph Builder::finish() {
  std::vector<const std::string*> names;
  for (const Input& in : graph_.inputs) names.push_back(&in.name);
  if (const std::string* twice = find_twice(std::move(names)))
    throw UserError(
        fmt::format("graph \"{}\": expected names of their own, two inputs are named \"{}\"", graph_.name, *twice));
  for (const OutputKind kind : {OutputKind::state, OutputKind::metric, OutputKind::result}) {
    names.clear();
    for (const Output& o : graph_.outputs)
      if (o.kind == kind) names.push_back(&o.name);
    if (const std::string* twice = find_twice(std::move(names)))
      throw UserError(
          fmt::format("graph \"{}\": expected names of their own, two outputs are named \"{}\"", graph_.name, *twice));
  }
  input_at_.clear();
  updated_.clear();
  noted_inputs_ = noted_outputs_ = 0;
  return std::exchange(graph_, {});
}

Origin::Origin(Builder& b, std::string_view name, Role role) : Origin(b, name) { b.set_role(role); }

Origin::Origin(Builder& b, std::string_view name) : b_(b), saved_(b.origin()), role_(b.role()) {
  b.set_origin(saved_.empty() ? std::string(name) : saved_.str() + "." + std::string(name));
}

InPlaceOf::InPlaceOf(Builder& b, const Node& n, std::string_view prefix) : b_(b), role_(b.role()) {
  origin_ = b.exchange_origin(prefix.empty() ? n.origin : SharedString(std::string(prefix) + n.origin.str()));
  b.set_role(n.role);
}

}  // namespace lathe
