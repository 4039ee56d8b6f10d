#include "plan/draft.h"

#include <numeric>
#include <optional>

#include "ir/step_set.h"
#include "plan/node_order.h"

namespace lathe {

Drafts make_drafts(const std::vector<Graph>& graphs, const Target& target, const KernelTable& table,
                   const PlanOptions& options) {
  std::vector<std::optional<Draft>> drafts(graphs.size());
  Drafts out;
  out.choices.resize(graphs.size());
  out.again.resize(graphs.size());
  out.expanded.resize(graphs.size());
  out.readers_first.resize(graphs.size());
  for_each_graph(graphs, [&](size_t i) {
    Chosen c = choose_kernels(graphs[i], target, table, options);
    const std::vector<int64_t> workspace = workspaces(c.choices);
    StorageFacts facts(c.graph);
    NodeOrder s = order_nodes(c.graph, facts, workspace, target.alignment, lanes(c.choices), options.in_flight);
    drafts[i] = Draft{std::move(c.graph), std::move(s.order), std::move(facts), std::move(s.storage)};
    out.choices[i] = std::move(c.choices);
    out.expanded[i] = std::move(c.expanded);
    out.readers_first[i] = s.readers_first;
  });
  for (auto& d : drafts) out.drafts.push_back(std::move(*d));
  return out;
}

Draft make_draft(Graph g, std::vector<int32_t> order, const std::vector<Choice>& choices) {
  StorageFacts facts(g);
  Storage storage = assign_storage(g, facts, order, workspaces(choices), lanes(choices));
  return {std::move(g), std::move(order), std::move(facts), std::move(storage)};
}

std::vector<int64_t> workspaces(const std::vector<Choice>& choices) {
  std::vector<int64_t> out;
  for (const Choice& c : choices) out.push_back(c.workspace);
  return out;
}

std::vector<Lane> lanes(const std::vector<Choice>& choices) {
  std::vector<Lane> out;
  for (const Choice& c : choices) out.push_back(c.candidate.lane);
  return out;
}

int64_t arena_bytes(std::vector<Draft>& drafts, const Target& target) {
  const std::vector<int64_t> segments = Arena(drafts, target).segments();
  return std::accumulate(segments.begin(), segments.end(), int64_t{0});
}

}  // namespace lathe
