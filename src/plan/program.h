// Program: a step as the device runs it: a flat list of launches with fixed places in the arena. ProgramSet: all
// Programs of a run, with one arena and the memory certificate.
#pragma once

#include <iterator>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "ir/graph.h"

namespace lathe {

enum class MemoryClass {  // What bytes are for.
  weights,                // parameters and running statistics
  optimizer,              // moments and other state of the optimizer, averages of weights
  gradients,              // of the parameters
  activations,            // all other results of nodes
  workspace,              // scratch of kernels
  staging,                // batches on their way to the device
  communication,          // scratch of collectives, beside the arena
};
// In the order of reports.
inline constexpr MemoryClass kMemoryClasses[] = {
    MemoryClass::weights,   MemoryClass::optimizer, MemoryClass::gradients,    MemoryClass::activations,
    MemoryClass::workspace, MemoryClass::staging,   MemoryClass::communication};
std::string_view to_string(MemoryClass);  // "weights", ...

struct Declined {      // A kernel that was not taken.
  std::string kernel;  // its name
  std::string reason;  // why
};

// A composite that no kernel accepted, and that runs as its expansion.
struct Expansion {
  std::string op;                  // the composite
  std::string origin;              // the layer that made it
  std::vector<Declined> declined;  // its own kernels, if any
};

inline constexpr int32_t kStepBegin = -1;  // in place of a launch: the inputs are where the Program reads them

struct Launch {                    // A node with its kernel and the places of its values.
  Node node;                       // its ValueIds are those of Program::graph
  Types in, out;                   // types
  Candidate candidate;             // the kernel
  KernelArgs args;                 // places in the arena
  Cost cost;                       // of the node
  std::vector<Declined> declined;  // better kernels that refused
  bool again = false;              // it has run before in this step: its result was dropped to save memory
  Lane lane = Lane::compute;       // its launches run in order, beside those of other lanes
  // Earlier launches of other lanes, or kStepBegin, that must be done before it starts (plan/lanes.h).
  std::vector<int32_t> waits = {};
  bool signals = false;  // a launch of another lane waits for it, or the end of the step

  double flops() const { return cost.flops * candidate.work; }  // that the kernel computes
};

// A graph input or output and where it lives.
struct Port {
  std::string name;                             // of the input or output
  TensorType type;                              // in memory
  InputKind kind = InputKind::batch;            // inputs
  OutputKind output_kind = OutputKind::result;  // outputs
  Buffer buffer;                                // in the arena
};

// A copy within the arena that runs after the launches: a state output that is not computed in place.
struct FinalCopy {
  Buffer dst, src;  // of the same length
};

// Bytes of one Program, each value rounded up to the alignment. Peak is the moment when most scratch bytes are live.
// Classes: params and buffers are weights; batch and step inputs are staging; accumulated gradients are gradients, and
// so is a value on its way into an update: computed, of the shape of an updated param or state of the optimizer, and
// read by the node that writes an update or by an elementwise node that computes such a value; and what a collective
// makes it of. Other values are activations, and so are the bytes of the scratch region that lie idle at the peak.
struct MemoryReport {
  // Live scratch bytes at one moment.
  struct Moment {
    int64_t gradients = 0, activations = 0, workspace = 0;  // bytes
  };
  int64_t by_class[std::size(kMemoryClasses)] = {};  // bytes at the moment of the peak; sums to `total`
  int64_t total = 0;        // state + inputs + scratch region of this Program, and what it has beside the arena
  int64_t scratch = 0;      // size of the scratch region (activations, gradients, workspace)
  int64_t lower_bound = 0;  // largest sum of live scratch bytes over all launches: no plan of this order can do better

  std::vector<Moment> timeline;      // while each node of Program::graph runs, then at the final copies
  int64_t peak = 0;                  // where most scratch bytes are live: an index of the timeline
  std::vector<std::string> holders;  // the largest values then: "f32[64, 128] conv1 (relu): 1.0 MiB"

  int64_t of(MemoryClass c) const { return by_class[static_cast<size_t>(c)]; }  // bytes of one class at the peak
};

struct Program {                        // What a device runs for one step.
  std::string name;                     // of the graph
  Graph graph;                          // lowered and scheduled
  std::vector<Launch> launches;         // in order
  std::vector<FinalCopy> final_copies;  // in this order
  std::vector<Expansion> expanded;      // composites without a kernel
  std::vector<Port> inputs;             // in the graph's order
  std::vector<Port> outputs;            // in the graph's order
  MemoryReport memory;                  // of this Program
  bool begin_signals = false;           // some launch waits for kStepBegin
  // Launches of other lanes that the compute lane waits for before the final copies: then all lanes are done.
  std::vector<int32_t> end_waits = {};
  bool has_lanes() const;  // some launch runs on another lane than compute
};

// What a Program does more than once.
struct Recomputed {
  int64_t launches = 0;      // that run again
  double flops = 0;          // of those
  double flops_percent = 0;  // of the flops without them
};
Recomputed recomputed(const Program&);  // counted in its launches

struct ProgramSet {                                  // All Programs of a run.
  std::vector<Program> programs;                     // train first, where it is there
  std::vector<Port> state;                           // same place in every Program
  std::vector<int64_t> segments;                     // arena: bytes per segment
  int64_t arena_bytes = 0;                           // sum of segments
  int64_t communication_bytes = 0;                   // beside the arena, of all Programs together
  const Program* find(std::string_view name) const;  // by name, or null
};

}  // namespace lathe
