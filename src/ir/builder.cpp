#include "ir/builder.h"

namespace lathe {

TensorType Value::type() const { return builder().graph().type(id_); }

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
  const bool any = op.info.inputs < 0;
  LATHE_CHECK(any ? !inputs.empty() : static_cast<int>(inputs.size()) == op.info.inputs, "{} takes {} inputs, got {}",
              op.name(), op.info.inputs, inputs.size());
  Types in;
  in.reserve(inputs.size());
  for (const Value& v : inputs) {
    LATHE_CHECK(v.valid() && &v.builder() == this, "{}: an input of another graph", op.name());
    node.inputs.push_back(v.id());
    in.push_back(v.type());
  }
  const Types out = op.infer(in, node.params.get());
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
  graph_.outputs.push_back({v.id(), kind, std::move(name), -1});
}

void Builder::update(Value state_input, Value new_value) {
  for (const Input& in : graph_.inputs)
    if (in.value == state_input.id()) {
      LATHE_CHECK(is_state(in.kind), "{} is not state", in.name);
      LATHE_CHECK(new_value.type() == state_input.type(), "{}: {} updates {}", in.name, to_string(new_value.type()),
                  to_string(state_input.type()));
      graph_.outputs.push_back({new_value.id(), OutputKind::state, in.name, state_input.id()});
      return;
    }
  LATHE_CHECK(false, "update of a value that is not an input");
}

Origin::Origin(Builder& b, std::string_view name) : b_(b), saved_(b.origin()) {
  b.set_origin(saved_.empty() ? std::string(name) : saved_ + "." + std::string(name));
}

}  // namespace lathe
