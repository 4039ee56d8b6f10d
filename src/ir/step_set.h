// StepSet: what is compiled: all graphs of a run (train, its tail batch, evaluation, ...) and the one table of the
// state that they share. A pass is a function from set to set. A set prints as text and parses back (ir/print.h);
// verify (ir/verify.h) is its constitution.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/builder.h"
#include "ir/state.h"

namespace lathe {

// The rows in the order in which they came, found by name. Copies share them until one is changed.
class StateTable {
 public:
  using Rows = std::vector<StateSpec>;  // in order
  // Appends the row. One of that name must say the same: UserError otherwise; two optimizers, say, that would share one
  // count of steps. It is gated then if one of the two is.
  void add(StateSpec);
  const StateSpec* find(std::string_view name) const;  // or null
  template <class P>
  void erase_if(P&& p) {  // rows for which p is true go
    if (std::ranges::none_of(rows(), p)) return;
    std::erase_if(own().rows, p);
    index();
  }
  Rows::const_iterator begin() const { return rows().begin(); }      // the first row
  Rows::const_iterator end() const { return rows().end(); }          // behind the last
  size_t size() const { return rows().size(); }                      // number of rows
  bool empty() const { return rows().empty(); }                      // no state
  const StateSpec& operator[](size_t i) const { return rows()[i]; }  // row i
  friend bool operator==(const StateTable& a, const StateTable& b) {
    return a.data_ == b.data_ || a.rows() == b.rows();  // in order
  }

 private:
  struct Hash {
    using is_transparent = void;  // a name is looked for as it is
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  struct Data {
    Rows rows;
    std::unordered_map<std::string, size_t, Hash, std::equal_to<>> places;
  };
  const Rows& rows() const;
  Data& own();  // shared with no other table from here on
  void index();
  std::shared_ptr<Data> data_;  // null: no rows
};

struct StepSet {              // See the top of the file.
  std::vector<Graph> graphs;  // names are unique
  StateTable state;           // each row is an input of some graph

  const Graph* find_graph(std::string_view name) const;  // or null
};

// A set of one graph; its state inputs become rows that start at zero and are not gated.
StepSet set_of(Graph);
// The graphs and state of `more` join those of `to`. UserError where a graph's name is taken, or as StateTable::add.
void merge(StepSet& to, StepSet more);

// f(i) for the index of each graph, side by side where the graphs are large (base/parallel.h).
void for_each_graph(std::span<const Graph>, const std::function<void(size_t)>& f);

// Rows that no graph names any more go; what others said of them (`like`, `of`) too.
void drop_unused_state(StepSet&);
// Inputs that nothing reads, updates or returns go.
Graph drop_unused_inputs(Graph);

bool structurally_equal(const StepSet&, const StepSet&);  // equal tables, and graphs equal up to the numbers of values

}  // namespace lathe
