#include "plan/choose.h"

#include <optional>

#include "backend/ref/ref_backend.h"
#include "ir/live_nodes.h"
#include "ir/rewrite.h"
#include "ops/expand_nodes.h"

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
    // Values are numbered in the order of the nodes.
    Graph copy = rebuild(source, [](Rebuild&, const Node&) { return std::optional<Values>(); });
    out_.graph = expand_marked(
        std::move(copy), [&](const Graph& g, const std::vector<bool>& fresh) { return choose_or_mark(g, fresh); });
    // An expansion may compute outputs that nobody wants.
    keep_marked(live_nodes(out_.graph), out_.graph.nodes, out_.choices);
  }

  Chosen finish() { return std::move(out_); }

 private:
  // Marks composites without a kernel; all other nodes have their choices then, in order.
  std::vector<bool> choose_or_mark(const Graph& g, const std::vector<bool>& fresh) {
    std::vector<bool> marked(g.nodes.size(), false);
    std::vector<Choice> choices;
    size_t kept = 0;
    for (size_t i = 0; i < g.nodes.size(); ++i) {
      if (!fresh[i])
        choices.push_back(std::move(out_.choices[kept++]));
      else if (auto choice = choose(g, g.nodes[i]))
        choices.push_back(std::move(*choice));
      else
        marked[i] = true;
    }
    out_.choices = std::move(choices);
    return marked;
  }

  // None: the node has to be expanded.
  std::optional<Choice> choose(const Graph& g, const Node& n) {
    Choice choice;
    if (n.op->has(kView)) return choice;
    const Site site{n, g.types_of(n.inputs), g.types_of(n.outputs), target_};
    for (const KernelTable::Row& row : table_.candidates(n.op->name()))
      if (try_candidate(row.candidate, site, choice)) return choice;
    if (n.op->is_composite()) {
      out_.expanded.push_back({std::string(n.op->name()), n.origin, std::move(choice.declined)});
      return std::nullopt;
    }
    if (options_.allow_fallback && target_.host_memory) {
      static const KernelTable reference(ref_kernels());
      for (const KernelTable::Row& row : reference.candidates(n.op->name()))
        if (try_candidate(row.candidate, site, choice)) return choice;
    }
    refuse(g, site, choice.declined);
  }

  bool try_candidate(const Candidate& candidate, const Site& site, Choice& choice) const {
    std::string reason = candidate.accepts(site);
    if (reason.empty() && candidate.workspace) {
      choice.workspace = candidate.workspace(site);
      LATHE_CHECK(choice.workspace >= 0, "{}: workspace of {} bytes", candidate.name, choice.workspace);
    }
    if (reason.empty() && candidate.communication) choice.communication = candidate.communication(site);
    if (reason.empty())
      choice.candidate = candidate;
    else
      choice.declined.push_back({std::string(candidate.name), std::move(reason)});
    return choice.candidate.bind != nullptr;
  }

  [[noreturn]] void refuse(const Graph& g, const Site& site, const std::vector<Declined>& declined) const {
    const Node& n = site.node;
    std::string text = fmt::format("plan \"{}\": no kernel of {} runs {}({}) -> {}", g.name, target_.name, n.op->name(),
                                   types_text(site.in), types_text(site.out));
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

  const Target& target_;
  const KernelTable& table_;
  const PlanOptions& options_;
  Chosen out_;
};

}  // namespace

Chosen choose_kernels(const Graph& g, const Target& target, const KernelTable& table, const PlanOptions& options) {
  return Chooser(g, target, table, options).finish();
}

}  // namespace lathe
