#include "plan/choose.h"

#include <algorithm>

#include "backend/ref/ref_backend.h"
#include "ir/live_nodes.h"
#include "ir/rewrite.h"
#include "ops/cast.h"

namespace lathe {
namespace {

std::string types_text(const Types& types) {
  std::vector<std::string> parts;
  for (const TensorType& t : types) parts.push_back(to_string(t));
  return fmt::format("{}", fmt::join(parts, ", "));
}

class Chooser {
 public:
  Chooser(const Graph& source, const Target& target, const KernelTable& table, const PlanOptions& options)
      : target_(target), table_(table), options_(options) {
    out_.graph.name = source.name;
    std::vector<ValueId> map(source.types.size(), -1);
    for (const Input& in : source.inputs) {
      const ValueId v = out_.graph.add_value(source.type(in.value));
      out_.graph.inputs.push_back({v, in.kind, in.name});
      map[static_cast<size_t>(in.value)] = v;
    }
    place_all(source, map);
    for (const Output& o : source.outputs)
      out_.graph.outputs.push_back({map[static_cast<size_t>(o.value)], o.kind, o.name,
                                    o.updates < 0 ? -1 : map[static_cast<size_t>(o.updates)]});
    drop_dead();
  }

  Chosen finish() { return std::move(out_); }

 private:
  void place_all(const Graph& g, std::vector<ValueId>& map) {
    for (const Node& n : g.nodes) {
      Node copy{n.op, n.params, {}, {}, n.origin, n.role};
      for (ValueId v : n.inputs) copy.inputs.push_back(map[static_cast<size_t>(v)]);
      const std::vector<ValueId> now = place(std::move(copy), g.types_of(n.outputs));
      for (size_t i = 0; i < now.size(); ++i) map[static_cast<size_t>(n.outputs[i])] = now[i];
    }
  }

  // Appends the node, or what its expansion comes to; returns its outputs.
  std::vector<ValueId> place(Node n, const Types& out) {
    Graph& g = out_.graph;
    if (n.op->has(kView)) return append(std::move(n), out, {});
    const Site site{n, g.types_of(n.inputs), out, target_};
    Choice choice;
    for (const KernelTable::Row& row : table_.candidates(n.op->name())) {
      if (try_candidate(row.candidate, site, choice)) return append(std::move(n), out, std::move(choice));
    }
    if (n.op->is_composite()) {
      out_.expanded.push_back({std::string(n.op->name()), n.origin, choice.declined});
      return expand(n, site.in, out);
    }
    if (options_.allow_fallback && target_.host_memory) {
      static const KernelTable reference(ref_kernels());
      for (const KernelTable::Row& row : reference.candidates(n.op->name()))
        if (try_candidate(row.candidate, site, choice)) return append(std::move(n), out, std::move(choice));
    }
    refuse(n, site, choice.declined);
  }

  bool try_candidate(const Candidate& candidate, const Site& site, Choice& choice) const {
    std::string reason = candidate.accepts(site);
    if (reason.empty() && candidate.workspace) {
      choice.workspace = candidate.workspace(site);
      LATHE_CHECK(choice.workspace >= 0, "{}: workspace of {} bytes", candidate.name, choice.workspace);
    }
    if (reason.empty())
      choice.candidate = candidate;
    else
      choice.declined.push_back({std::string(candidate.name), std::move(reason)});
    return choice.candidate.bind != nullptr;
  }

  std::vector<ValueId> append(Node n, const Types& out, Choice choice) {
    for (const TensorType& t : out) n.outputs.push_back(out_.graph.add_value(t));
    std::vector<ValueId> outputs = n.outputs;
    out_.graph.nodes.push_back(std::move(n));
    out_.choices.push_back(std::move(choice));
    return outputs;
  }

  std::vector<ValueId> expand(const Node& n, const Types& in, const Types& out) {
    check_expansion_ends(out_.graph, depth_, *n.op);
    Builder b(std::string(n.op->name()));
    Values args;
    for (size_t i = 0; i < in.size(); ++i) args.push_back(b.input(in[i], InputKind::batch, "x" + std::to_string(i)));
    const Values results = expand_in_f32(b, n, args, out);
    std::vector<ValueId> ids;
    for (const Value& v : results) ids.push_back(v.id());
    Graph body = b.finish();
    for (Node& m : body.nodes)
      if (m.origin.empty()) m.origin = n.origin;
    std::vector<ValueId> map(body.types.size(), -1);
    for (size_t i = 0; i < in.size(); ++i) map[static_cast<size_t>(body.inputs[i].value)] = n.inputs[i];
    ++depth_;
    place_all(body, map);
    --depth_;
    for (ValueId& v : ids) v = map[static_cast<size_t>(v)];
    return ids;
  }

  [[noreturn]] void refuse(const Node& n, const Site& site, const std::vector<Declined>& declined) const {
    std::string text = fmt::format("plan \"{}\": no kernel of {} runs {}({}) -> {}", out_.graph.name, target_.name,
                                   n.op->name(), types_text(site.in), types_text(site.out));
    if (!n.origin.empty()) text += fmt::format(" of {}", n.origin);
    if (declined.empty()) text += ": it has none for this op";
    for (size_t i = 0; i < declined.size(); ++i)
      text += fmt::format("{} {}: {}", i == 0 ? ":" : ";", declined[i].kernel, declined[i].reason);
    if (n.is("grad"))
      text += "; run the autodiff pass first";
    else
      text += "; try another device (`lathe devices --ops` says what runs where)";
    throw UserError(text);
  }

  // An expansion may compute outputs that nobody wants.
  void drop_dead() { keep_marked(live_nodes(out_.graph), out_.graph.nodes, out_.choices); }

  const Target& target_;
  const KernelTable& table_;
  const PlanOptions& options_;
  Chosen out_;
  int depth_ = 0;  // of expansions within expansions
};

}  // namespace

Chosen choose_kernels(const Graph& g, const Target& target, const KernelTable& table, const PlanOptions& options) {
  return Chooser(g, target, table, options).finish();
}

}  // namespace lathe
