// Labels: where every value of a graph lies on the ranks (ir/placement.h), decided node by node: of the rows of an op
// the one that moves the fewest bytes.
//
// A split by samples comes from batch inputs, any other from state. The two do not mix: what meets samples is gathered
// first, as small as it gets, so that data parallelism stays what it is whatever is split beside it. A sum over ranks
// on its way into an update of split state is made where its part is wanted: the ranks never have the whole.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/placement.h"

namespace lathe {

inline size_t index_of(ValueId v) { return static_cast<size_t>(v); }  // in what is by value

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
  // `samples`: of the graphs' batch; 0: it has none.
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

// `outputs`: where they must lie; empty: anywhere.
Labels label(const Graph&, const Placements& inputs, const Placements& outputs, CompositeRows&);

// By value: zero whatever the inputs are. Of such a value every placement is true.
std::vector<bool> zeros_of(const Graph&);

}  // namespace lathe
