// What a pass is: a function from graph to graph, without state, device or I/O. The ordered list is pipeline.cpp.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/target.h"
#include "ir/verify.h"

namespace lathe {

struct PassContext {             // All that a pass may know beside the graph.
  Target target;                 // of the device
  DType precision = DType::f32;  // in which products are computed
};

struct PassEntry {                          // A pass with its name and place in the rules.
  std::string_view name;                    // for --disable-pass and reports
  Graph (*run)(Graph, const PassContext&);  // the pass itself
  Level level;                              // what verify may demand of the result
  bool required = false;                    // cannot be disabled: without it the graph cannot be planned
};

struct PassReport {       // What one pass did.
  std::string name;       // of the pass
  double seconds = 0;     // it took
  bool changed = false;   // the graph is another one than before, or has other parameter objects
  bool disabled = false;  // it was left out
  size_t nodes = 0;       // after the pass
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
  bool verify = true;  // check the graph around each pass; after added ones it is checked always
  // Called after each pass that ran, with the graph before and after it.
  std::function<void(const PassEntry&, const Graph& before, const Graph& after)> on_pass;
};

std::span<const PassEntry> pipeline();                         // the table
std::vector<PassEntry> pipeline_with(const PipelineOptions&);  // with the added passes in their places
// How a pipeline differs from the table: names of disabled passes, and "+NAME" of added ones, sorted.
std::vector<std::string> pipeline_changes(const PipelineOptions&);
// The table and added passes.
Graph run_pipeline(Graph, const PassContext&, const PipelineOptions& = {}, std::vector<PassReport>* = nullptr);
// The same driver over another list: for tests.
Graph run_passes(std::span<const PassEntry>, Graph, const PassContext&, const PipelineOptions& = {},
                 std::vector<PassReport>* = nullptr);

}  // namespace lathe
