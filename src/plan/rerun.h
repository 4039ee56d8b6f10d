// rerun: nodes that run again. A result may be dropped after a use and computed again just before a later one, by the
// same kernel from the same operands: the same bits. Which nodes do so, and when, is a Reruns; any Reruns is right, for
// a reader takes the newest result there is, and only lifetimes change with it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/choose.h"
#include "plan/storage.h"

namespace lathe {

// Nodes are named by their place in the order. What runs again at `at` does so just before node `at`, in the order in
// which it ran first.
class Reruns {
 public:
  explicit Reruns(size_t nodes) : times_(nodes), at_(nodes) {}
  void add(int32_t node, int32_t at);     // at > node; not there yet
  void remove(int32_t node, int32_t at);  // there
  std::span<const int32_t> times(int32_t node) const { return times_[static_cast<size_t>(node)]; }  // ascending
  std::span<const int32_t> at(int32_t time) const { return at_[static_cast<size_t>(time)]; }        // ascending
  int64_t count() const { return count_; }

 private:
  std::vector<std::vector<int32_t>> times_, at_;
  int64_t count_ = 0;
};

// The lifetimes that follow from a Reruns, in times of runs. An instance is one result of one run.
struct LiveProfile {
  struct Run {
    int32_t node, at;
  };
  std::vector<Run> runs;
  std::vector<int64_t> bytes;        // by run: live while it runs; then at the end copies
  std::vector<int32_t> base;         // by result: its first instance; the others follow
  std::vector<int32_t> first, last;  // by instance: runs; last == runs.size(): kept to the end
  int64_t peak = 0;
  int32_t peak_run = 0;
};

// A graph in its order, as far as lifetimes need it. Results are the values that take scratch memory of their own:
// views and what is written over state are none. Agrees with assign_storage and find_peak to the byte.
class LiveModel {
 public:
  LiveModel(const Graph&, const StorageFacts&, std::span<const int32_t> order, const Storage&,
            std::span<const int64_t> workspace, std::span<const Lane> lanes, int64_t alignment);

  struct NodeFacts {
    std::vector<int32_t> reads;    // results, each once
    std::vector<int32_t> results;  // results
    int64_t workspace = 0;
    int32_t latest = 0;   // it may run again up to just before this node; 0: never
    int32_t waited = -1;  // as find_waits() (plan/storage.h) says
    bool is_view = false;
    Cost cost;
  };
  struct ResultFacts {
    int32_t node = 0;
    int64_t bytes = 0;              // rounded up
    bool at_end = false;            // kept to the end
    std::vector<int32_t> overlays;  // results of inputs whose place it may take if they die there, best first
  };

  size_t size() const { return nodes_.size(); }
  const NodeFacts& node(int32_t i) const { return nodes_[static_cast<size_t>(i)]; }
  const ResultFacts& result(int32_t i) const { return results_[static_cast<size_t>(i)]; }
  size_t results() const { return results_.size(); }
  void simulate(const Reruns&, LiveProfile&) const;

 private:
  std::vector<NodeFacts> nodes_;
  std::vector<ResultFacts> results_;
  std::vector<int64_t> end_bytes_;  // slots of end copies
  int64_t alignment_;
};

// The graph with its reruns as nodes of their own, in their order: node i runs i-th.
struct WithReruns {
  Graph graph;
  std::vector<Choice> choices;  // by node
  std::vector<uint8_t> again;   // by node: it is a rerun
};
WithReruns apply_reruns(const Graph&, const std::vector<Choice>&, const StorageFacts&, std::span<const int32_t> order,
                        const Reruns&);

}  // namespace lathe
