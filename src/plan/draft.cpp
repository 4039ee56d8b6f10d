#include "plan/draft.h"

#include <numeric>

#include "plan/schedule.h"

namespace lathe {

Drafts make_drafts(const std::vector<Graph>& graphs, const Target& target, const KernelTable& table,
                   const PlanOptions& options) {
  Drafts out;
  for (const Graph& graph : graphs) {
    Chosen c = choose_kernels(graph, target, table, options);
    const std::vector<int64_t> workspace = workspaces(c.choices);
    StorageFacts facts(c.graph);
    Schedule s = schedule(c.graph, facts, workspace, target.alignment);
    out.drafts.push_back({std::move(c.graph), std::move(s.order), std::move(facts), std::move(s.storage)});
    out.choices.push_back(std::move(c.choices));
    out.again.emplace_back();
    out.expanded.push_back(std::move(c.expanded));
    out.readers_first.push_back(s.readers_first);
  }
  return out;
}

Draft make_draft(Graph g, std::vector<int32_t> order, const std::vector<Choice>& choices) {
  StorageFacts facts(g);
  Storage storage = assign_storage(g, facts, order, workspaces(choices));
  return {std::move(g), std::move(order), std::move(facts), std::move(storage)};
}

std::vector<int64_t> workspaces(const std::vector<Choice>& choices) {
  std::vector<int64_t> out;
  for (const Choice& c : choices) out.push_back(c.workspace);
  return out;
}

int64_t arena_bytes(std::vector<Draft>& drafts, const Target& target) {
  const std::vector<int64_t> segments = Arena(drafts, target).segments();
  return std::accumulate(segments.begin(), segments.end(), int64_t{0});
}

}  // namespace lathe
