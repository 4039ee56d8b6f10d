// What a pass is: a function from step set to step set, without state, device or I/O. The ordered list is pipeline.cpp.
#pragma once

#include <any>
#include <functional>
#include <string>
#include <string_view>
#include <typeindex>
#include <unordered_map>
#include <vector>

#include "ir/step_set.h"
#include "ir/target.h"
#include "ir/verify.h"

namespace lathe {

// The options structs of passes, each of which lives with its pass.
class PassOptions {
 public:
  template <class T>
  const T& get() const {  // as it was set, else with its defaults
    static const T defaults{};
    const auto found = structs_.find(typeid(T));
    return found == structs_.end() ? defaults : *std::any_cast<T>(&found->second);
  }
  template <class T>
  PassOptions& set(T options) {  // from now on get<T>() returns it
    structs_[typeid(T)] = std::move(options);
    return *this;
  }

 private:
  std::unordered_map<std::type_index, std::any> structs_;
};

struct PassContext {             // All that a pass may know beside the set.
  Target target;                 // of the device
  DType precision = DType::f32;  // in which products are computed
  PassOptions options = {};      // of the passes
};

enum Touches : unsigned {    // What a pass may change beside nodes; a set of bits.
  kTouchesNothing = 0,       // inputs may go, all else stays
  kTouchesState = 1u << 0,   // rows of the state table, and their inputs and outputs
  kTouchesPorts = 1u << 1,   // batch and step inputs, metrics and results
  kTouchesGraphs = 1u << 2,  // the number and the names of the graphs
};

enum class Promise {  // What a pass says of the numbers that a run computes.
  preserves,          // they stay the same, but for rounding
  changes,            // they change, unless its options are inert
};

using PassFunction = StepSet (*)(StepSet, const PassContext&);  // a pass

// A pass over single graphs as one over sets: each_graph<cse>.
template <Graph (*pass)(Graph, const PassContext&)>
StepSet each_graph(StepSet set, const PassContext& context) {
  for (Graph& g : set.graphs) g = pass(std::move(g), context);
  return set;
}

struct PassEntry {                       // A pass with its name and place in the rules.
  std::string_view name;                 // for --disable-pass and reports
  PassFunction run;                      // the pass itself
  Level level;                           // what verify may demand of the result
  bool required = false;                 // cannot be disabled: without it the set cannot be planned
  unsigned touches = kTouchesNothing;    // Touches bits; the driver holds the pass to it
  Promise promise = Promise::preserves;  // proved by passes/check/validate.h
  // Promise::changes: options with which the pass has work to do and yet changes nothing (a bound of infinity, a scale
  // of 1): what validate proves. Null: those that it is given.
  void (*make_inert)(PassOptions&) = nullptr;
};

struct PassReport {       // What one pass did to all graphs.
  std::string name;       // of the pass
  double seconds = 0;     // it took
  bool changed = false;   // the set is another one than before, or has other parameter objects
  bool disabled = false;  // it was left out
  size_t nodes = 0;       // after the pass, of all graphs
};

// A pass that is none of the pipeline's own.
struct AddedPass {
  std::string after;  // the pass that it follows, of the pipeline or added before it; empty: it is the first
  PassEntry pass;     // what runs there
};

struct PipelineOptions {              // How the pipeline runs.
  std::vector<std::string> disabled;  // names of optional passes; UserError on unknown or required ones
  std::string stop_after;             // empty: run all
  // Passes of one's own: from here on like all others, in reports, on_pass, `disabled` and `stop_after`. UserError
  // where a name is taken or the pass to follow is unknown.
  std::vector<AddedPass> added = {};
  bool verify = true;  // check the set around each pass; after added ones it is checked always
  // Called after each pass that ran, with the set before and after it.
  std::function<void(const PassEntry&, const StepSet& before, const StepSet& after)> on_pass;
};

std::span<const PassEntry> pipeline();                         // the table
std::vector<PassEntry> pipeline_with(const PipelineOptions&);  // with the added passes in their places
// How a pipeline differs from the table: names of disabled passes, and "+NAME" of added ones, sorted.
std::vector<std::string> pipeline_changes(const PipelineOptions&);
// The table and added passes.
StepSet run_pipeline(StepSet, const PassContext&, const PipelineOptions& = {}, std::vector<PassReport>* = nullptr);
// The same for a graph by itself.
Graph run_pipeline(Graph, const PassContext&, const PipelineOptions& = {}, std::vector<PassReport>* = nullptr);
// The same driver over another list: for tests.
StepSet run_passes(std::span<const PassEntry>, StepSet, const PassContext&, const PipelineOptions& = {},
                   std::vector<PassReport>* = nullptr);

}  // namespace lathe
