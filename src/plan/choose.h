// choose: a kernel for every node. A composite that no kernel accepts is replaced by its expansion.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace lathe {

struct Choice {
  Candidate candidate{};      // empty for views, which need no kernel
  int64_t workspace = 0;      // bytes
  int64_t communication = 0;  // bytes, see Candidate
  std::vector<Declined> declined;
};

struct Chosen {
  Graph graph;                  // nodes without a reader and without an output are left out
  std::vector<Choice> choices;  // by node
  std::vector<Expansion> expanded;
};

// UserError names op, types, device and every kernel's reason when a node cannot run.
Chosen choose_kernels(const Graph&, const Target&, const KernelTable&, const PlanOptions&);

// Keeps of each list by node the entries that are marked.
template <class... Lists>
void keep_marked(const std::vector<bool>& keep, Lists&... lists) {
  size_t at = 0;
  for (size_t i = 0; i < keep.size(); ++i) {
    if (!keep[i]) continue;
    if (at != i) ((lists[at] = std::move(lists[i])), ...);
    ++at;
  }
  (lists.resize(at), ...);
}

}  // namespace lathe
