// Division: a graph of the whole step as one rank runs it. Every value gets a placement (ir/placement.h), node by node:
// of the rows of an op the one that moves the fewest bytes. Where a reader wants another placement than the value has,
// a collective stands between them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/placement.h"

namespace lathe {

// What is the same for all ranks.
struct Labels {
  Placements of;                   // by value
  std::vector<PlacementRow> rows;  // by node: how it is divided
  std::vector<bool> open;          // by node: composites whose expansion needs collectives inside
  double bytes = 0;                // that collectives move, of all values together
};

// How composites can be divided, by op, parameters, types and placements: each is looked at once.
class CompositeRows {
 public:
  CompositeRows(int ranks, int64_t samples) : mesh_{ranks, 0}, samples_(samples) {}

  struct Entry {
    PlacementRow row;
    double bytes = 0;    // that its expansion moves
    bool whole = false;  // the op on what a rank has is what its expansion is divided into
  };
  // The inputs of the row are `in`, or free to be had from them.
  const Entry& find(const Graph&, const Node&, const Placements& in);

 private:
  Entry look(const Node&, const Types& ins, const Graph& whole, const Placements& in);

  Mesh mesh_;  // the first rank's: all decide alike
  int64_t samples_;
  std::map<std::string, Entry> entries_;
};

// `samples`: what split axes hold a multiple of; 0: nothing is split. `outputs`: where they must lie; empty: anywhere.
Labels label(const Graph&, int64_t samples, const Placements& inputs, const Placements& outputs, CompositeRows&);

// The graph of mesh.rank. `labels` are of this graph, and no node is open.
Graph divide(const Graph&, const Labels&, const Mesh&, int64_t samples, const Placements& inputs,
             const Placements& outputs);

}  // namespace lathe
