// What a pass is: a function from step set to step set, without state, device or I/O. The ordered list is
// techniques/table.h and pipeline.cpp.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/schema.h"
#include "ir/step_set.h"
#include "ir/target.h"
#include "ir/verify.h"

namespace lathe {

using PassOptions = ParamSets;  // The options structs of passes, each of which lives with its pass.

struct PassContext {         // All that a pass may know beside the set.
  Target target;             // of the device
  PassOptions options = {};  // of all passes
  Mesh mesh = {};            // the ranks that steps are divided among, and whose graphs are wanted
};

enum Touches : unsigned {    // What a pass may change beside nodes; a set of bits.
  kTouchesNothing = 0,       // inputs may go, all else stays
  kTouchesState = 1u << 0,   // rows of the state table, and their inputs and outputs
  kTouchesPorts = 1u << 1,   // batch and step inputs, metrics and results
  kTouchesGraphs = 1u << 2,  // the number and the names of the graphs
  kTouchesOrder = 1u << 3,   // which ordered nodes there are, and their order: in the same way on all ranks
};

enum class Promise {  // What a pass says of the numbers that a run computes.
  preserves,          // they stay the same, but for rounding
  changes,            // they change, unless its options are inert
};

using PassFunction = StepSet (*)(StepSet, const PassContext&);  // a pass

// A pass over single graphs as one over sets: each_graph<cse>. Large graphs are passed side by side.
template <Graph (*pass)(Graph, const PassContext&)>
StepSet each_graph(StepSet set, const PassContext& context) {
  for_each_graph(set.graphs, [&](size_t i) { set.graphs[i] = pass(std::move(set.graphs[i]), context); });
  return set;
}

// The options struct of a pass. Names of its fields are paths of recipe keys ("train.clip_value"): parsing, checks,
// errors, printing, hash and reference follow from them. What the struct may have beside `fields`:
//
//   static bool is_on(const T&);  // the pass works on marked gradients, and has work to do: else the driver does not
//                                 // call it, and refuses a set whose steps mark none (ops/gradient.h)
//   static T inert();  // options with which the pass has work to do and yet changes nothing: a bound of infinity
//   static void check(const PassOptions&, RuleReport&);  // rules that join several options, of other passes too
struct OptionsRow {
  const Schema& (*schema)() = nullptr;                       // null: the pass has no options
  bool (*is_on)(const PassOptions&) = nullptr;               // see above; null: no gradients are needed
  void (*make_inert)(PassOptions&) = nullptr;                // what validate proves; null: as they are given
  void (*check)(const PassOptions&, RuleReport&) = nullptr;  // null: any values of its fields fit together
};

// The row of a struct: kOptions<ClipValueOptions>.
template <HasFields T>
inline constexpr OptionsRow kOptions = [] {
  OptionsRow row{schema_of<T>};
  if constexpr (requires(const T& o) { T::is_on(o); })
    row.is_on = [](const PassOptions& o) { return bool(T::is_on(o.get<T>())); };
  if constexpr (requires { T::inert(); }) row.make_inert = [](PassOptions& o) { o.set(T::inert()); };
  if constexpr (requires(const PassOptions& o, RuleReport& r) { T::check(o, r); }) row.check = T::check;
  return row;
}();

struct PassEntry {                       // A pass with its name and place in the rules.
  std::string_view name;                 // for --disable-pass and reports
  PassFunction run;                      // the pass itself
  Level level;                           // what verify may demand of the result
  bool required = false;                 // cannot be disabled: the plan or the loop relies on it
  unsigned touches = kTouchesNothing;    // Touches bits; the driver holds the pass to it
  Promise promise = Promise::preserves;  // proved by passes/check/validate.h
  OptionsRow options = {};               // its options struct
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
  // Custom passes: from here on like all others, in reports, on_pass, `disabled` and `stop_after`. UserError
  // where a name is taken or the pass to follow is unknown.
  std::vector<AddedPass> added = {};
  bool verify = true;  // check the set around each pass; after added ones it is checked always
  // Called after each pass that ran, with the set before and after it.
  std::function<void(const PassEntry&, const StepSet& before, const StepSet& after)> on_pass;
};

std::span<const PassEntry> pipeline();   // the table
std::vector<OptionsRow> pass_options();  // of its passes, in their order; and registered ones
// Options of a custom pass become keys of recipes: kOptions<MyOptions>. Before the first recipe is read.
// UserError: another pass has a key of that name.
void register_options(const OptionsRow&);
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
