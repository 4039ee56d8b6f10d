#include "ir/print.h"

#include <fmt/format.h>

#include <algorithm>

namespace lathe {
namespace {

std::string quoted(const std::string& s) {
  const std::string text = to_string(Attrs{{"s", Attr(s)}});  // {s="..."}
  return text.substr(3, text.size() - 4);
}

// A word stands as it is.
std::string graph_name(const std::string& name) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  };
  if (name.empty()) return "_";
  return std::ranges::all_of(name, is_word) ? name : quoted(name);
}

class Printer {
 public:
  explicit Printer(const Graph& g) : g_(g) {
    number_.assign(g.types.size(), -1);
    for (const Input& in : g.inputs) number(in.value);
    for (const Node& n : g.nodes)
      for (ValueId v : n.outputs) number(v);
  }

  std::string graph() const {
    std::string out = fmt::format("graph {} {{\n", graph_name(g_.name));
    for (const Input& in : g_.inputs)
      out += fmt::format("  input {}: {} {} {}\n", name(in.value), type(in.value), to_string(in.kind), quoted(in.name));
    for (const Node& n : g_.nodes) out += "  " + node(n) + "\n";
    for (const Output& o : g_.outputs) {
      out += fmt::format("  output {} {} {}", name(o.value), to_string(o.kind), quoted(o.name));
      if (o.updates >= 0) out += fmt::format(" updates {}", name(o.updates));
      out += "\n";
    }
    return out + "}";
  }

  std::string node(const Node& n) const {
    std::string out;
    for (ValueId v : n.outputs) out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", name(v), type(v));
    std::vector<std::string> args;
    for (ValueId v : n.inputs) args.push_back(name(v));
    out += fmt::format(" = {}({})", n.op ? n.op->name() : "?", fmt::join(args, ", "));
    if (n.op && n.params && n.params.type() == *n.op->params_type) {
      const std::string attrs = indented(to_string(n.op->to_attrs(n.params.get())));
      if (!attrs.empty()) out += " " + attrs;
    }
    if (!n.origin.empty()) out += " @" + quoted(n.origin);
    if (n.role != Role::model) out += fmt::format(" as {}", to_string(n.role));
    return out;
  }

 private:
  // Graphs that verify() refuses are printed too.
  void number(ValueId v) {
    if (v >= 0 && static_cast<size_t>(v) < number_.size()) number_[static_cast<size_t>(v)] = next_++;
  }
  // Bodies of fused nodes span lines; indent them below their node.
  static std::string indented(const std::string& text) {
    std::string out;
    for (char c : text) {
      out += c;
      if (c == '\n') out += "  ";
    }
    return out;
  }
  std::string type(ValueId v) const {
    return v >= 0 && static_cast<size_t>(v) < g_.types.size() ? to_string(g_.type(v)) : "?";
  }
  std::string name(ValueId v) const {
    if (v < 0 || static_cast<size_t>(v) >= number_.size()) return "%?";
    const int32_t n = number_[static_cast<size_t>(v)];
    return n < 0 ? fmt::format("%undefined{}", v) : fmt::format("%{}", n);
  }

  const Graph& g_;
  std::vector<int32_t> number_;
  int32_t next_ = 0;
};

}  // namespace

std::string print(const Graph& g) { return Printer(g).graph(); }
std::string print_node(const Graph& g, const Node& n) { return Printer(g).node(n); }

namespace {

std::string state_row(const StateSpec& s) {
  const StateSpec plain;
  Attrs attrs;
  const auto add = [&](const char* name, const auto& value, const auto& usual) {
    if (!(value == usual)) attrs.emplace_back(name, Attr(value));
  };
  const auto kind_text = [](Init::Kind k) {
    return std::string(k == Init::Kind::uniform ? "uniform" : k == Init::Kind::normal ? "normal" : "constant");
  };
  add("init", kind_text(s.init.kind), kind_text(plain.init.kind));
  add("value", s.init.value, plain.init.value);
  add("view", s.file.view, plain.file.view);
  add("perm", s.file.perm, plain.file.perm);
  add("shape", s.file.shape, plain.file.shape);
  add("like", s.like, plain.like);
  add("of", s.of, plain.of);
  add("gated", s.gated, plain.gated);
  add("saved_in", std::string(to_string(s.saved_in)), std::string(to_string(plain.saved_in)));
  add("saved_as", s.saved_as, plain.saved_as);
  add("owner", s.owner, plain.owner);
  add("split", s.part.axis, plain.part.axis);
  add("whole", s.part.whole, plain.part.whole);
  add("first", s.part.first, plain.part.first);
  std::string row = fmt::format("state {} {} {}", to_string(s.type), to_string(s.kind), quoted(s.name));
  if (!attrs.empty()) row += " " + to_string(attrs);
  return row;
}

}  // namespace

std::string print(const StepSet& set) {
  std::string out = "set {\n";
  for (const StateSpec& s : set.state) out += "  " + state_row(s) + "\n";
  for (const Graph& g : set.graphs) out += print(g) + "\n";
  return out + "}";
}

}  // namespace lathe
