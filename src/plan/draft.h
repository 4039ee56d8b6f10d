// draft: graphs on their way to a ProgramSet: kernels are chosen, the order is set, addresses are not.
#pragma once

#include <vector>

#include "plan/arena.h"
#include "plan/choose.h"

namespace lathe {

// By graph.
struct Drafts {
  std::vector<Draft> drafts;
  std::vector<std::vector<Choice>> choices;  // by node
  std::vector<std::vector<uint8_t>> again;   // by node: it has run before; an empty list: none has
  std::vector<std::vector<Expansion>> expanded;
  std::vector<uint8_t> readers_first;  // state is read before it is written
};

Drafts make_drafts(const std::vector<Graph>&, const Target&, const KernelTable&, const PlanOptions&);
Draft make_draft(Graph, std::vector<int32_t> order, const std::vector<Choice>&);

std::vector<int64_t> workspaces(const std::vector<Choice>&);  // bytes by node
std::vector<Lane> lanes(const std::vector<Choice>&);          // by node
int64_t arena_bytes(std::vector<Draft>&, const Target&);

}  // namespace lathe
