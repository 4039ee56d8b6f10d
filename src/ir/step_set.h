// StepSet: what is compiled: all graphs of a run (train, its tail batch, evaluation, ...) and the one table of the
// state that they share. A pass is a function from set to set. A set prints as text and parses back (ir/print.h);
// verify (ir/verify.h) is its constitution.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/builder.h"
#include "ir/state.h"

namespace lathe {

// The rows in the order in which they came, found by name.
class StateTable {
 public:
  using Rows = std::vector<StateSpec>;  // in order
  // Appends the row. One of that name must say the same: UserError otherwise; two optimizers, say, that would share one
  // count of steps. It is gated then if one of the two is.
  void add(StateSpec);
  const StateSpec* find(std::string_view name) const;  // or null
  template <class P>
  void erase_if(P&& p) {  // rows for which p is true go
    std::erase_if(rows_, p);
    index();
  }
  Rows::const_iterator begin() const { return rows_.begin(); }                                     // the first row
  Rows::const_iterator end() const { return rows_.end(); }                                         // behind the last
  size_t size() const { return rows_.size(); }                                                     // number of rows
  bool empty() const { return rows_.empty(); }                                                     // no state
  const StateSpec& operator[](size_t i) const { return rows_[i]; }                                 // row i
  friend bool operator==(const StateTable& a, const StateTable& b) { return a.rows_ == b.rows_; }  // in order

 private:
  void index();
  Rows rows_;
  std::unordered_map<std::string, size_t> places_;
};

struct StepSet {              // See the top of the file.
  std::vector<Graph> graphs;  // names are unique
  StateTable state;           // each row is read or written by some graph

  const Graph* find_graph(std::string_view name) const;  // or null
};

// A set of one graph; its state inputs become rows that start at zero and are not gated.
StepSet set_of(Graph);
// The graphs and state of `more` join those of `to`. UserError where a graph's name is taken, or as StateTable::add.
void join(StepSet& to, StepSet more);

// Rows that no graph names any more go.
void drop_unused_state(StepSet&);
// Inputs that nothing reads, updates or returns go.
Graph drop_unused_inputs(Graph);

bool structurally_equal(const StepSet&, const StepSet&);  // equal tables, and graphs equal up to the numbers of values

}  // namespace lathe
