// Program: a step as the device runs it: a flat list of launches with fixed places in the arena. ProgramSet: all
// Programs of a run, with one arena and the memory certificate.
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"
#include "ir/graph.h"

namespace lathe {

enum class MemoryClass { weights, optimizer, gradients, activations, workspace, staging };
inline constexpr MemoryClass kMemoryClasses[] = {MemoryClass::weights,   MemoryClass::optimizer,
                                                 MemoryClass::gradients, MemoryClass::activations,
                                                 MemoryClass::workspace, MemoryClass::staging};
std::string_view to_string(MemoryClass);

struct Declined {
  std::string kernel;
  std::string reason;
};

// A composite that no kernel accepted, and that runs as its expansion.
struct Expansion {
  std::string op;
  std::string origin;
  std::vector<Declined> declined;
};

struct Launch {
  Node node;  // its ValueIds are those of Program::graph
  Types in, out;
  Candidate candidate;
  KernelArgs args;
  Cost cost;
  std::vector<Declined> declined;
  bool again = false;  // it has run before in this step: its result was dropped to save memory
};

// A graph input or output and where it lives.
struct Port {
  std::string name;
  TensorType type;
  InputKind kind = InputKind::batch;            // inputs
  OutputKind output_kind = OutputKind::result;  // outputs
  Buffer buffer;
};

// A copy within the arena that runs after the launches: a state output that is not computed in place.
struct FinalCopy {
  Buffer dst, src;
};

// Bytes of one Program, each value rounded up to the alignment. Peak is the moment when most scratch bytes are live.
// Classes: params and buffers are weights; batch and step inputs are staging; accumulated gradients are gradients, and
// so is a value on its way into an update: computed, of the shape of an updated param, and read by the node that writes
// an update or by an elementwise node that computes such a value. Other values are activations, and so are the bytes of
// the scratch region that lie idle at the peak.
struct MemoryReport {
  // Live scratch bytes at one moment.
  struct Moment {
    int64_t gradients = 0, activations = 0, workspace = 0;
  };
  int64_t by_class[6] = {};  // bytes at the moment of the peak, by MemoryClass; sums to `total`
  int64_t total = 0;         // state + inputs + scratch region of this Program
  int64_t scratch = 0;       // size of the scratch region (activations, gradients, workspace)
  int64_t lower_bound = 0;   // largest sum of live scratch bytes over all launches: no plan of this order can do better

  std::vector<Moment> timeline;      // while each node of Program::graph runs, then at the final copies
  int64_t peak = 0;                  // where most scratch bytes are live: an index of the timeline
  std::vector<std::string> holders;  // the largest values then: "f32[64, 128] conv1 (relu): 1.0 MiB"

  int64_t of(MemoryClass c) const { return by_class[static_cast<size_t>(c)]; }
};

struct Program {
  std::string name;
  Graph graph;  // lowered and scheduled
  std::vector<Launch> launches;
  std::vector<FinalCopy> final_copies;  // in this order
  std::vector<Expansion> expanded;
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  MemoryReport memory;
};

// What a Program does more than once.
struct Recomputed {
  int64_t launches = 0;
  double flops = 0;
  double flops_percent = 0;  // of the flops without them
};
Recomputed recomputed(const Program&);

struct ProgramSet {
  std::vector<Program> programs;
  std::vector<Port> state;        // same place in every Program
  std::vector<int64_t> segments;  // arena: bytes per segment
  int64_t arena_bytes = 0;        // sum of segments
  const Program* find(std::string_view name) const;
};

}  // namespace lathe
