// Runs graphs on a device the plain way, for tests and self tests: plan, open, bind, copy in, run, copy out. Training
// uses the Executor.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "ir/interpret.h"
#include "plan/plan.h"

namespace lathe {

// Values of a dtype as bytes, and back. Values are rounded to the dtype. UserError where there are not as many as the
// type has elements.
std::vector<std::byte> to_bytes(const HostTensor&);
HostTensor from_bytes(const TensorType&, std::span<const std::byte>);  // the other way

// A Program bound to a device. UserError where its arena is not allocated yet.
class BoundProgram {
 public:
  BoundProgram(Device&, const Program&);  // both must outlive it
  // `inputs` in the order of Program::inputs, state included; returns Program::outputs. UserError where number, types
  // or sizes of the inputs are not those of the Program.
  std::vector<HostTensor> run(const std::vector<HostTensor>& inputs);

 private:
  Device& device_;
  const Program& program_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

// `inputs` in the order of graph.inputs; returns values in the order of graph.outputs. The graph runs as it is: passes
// are the caller's choice.
std::vector<HostTensor> run_graph(const Backend&, const DeviceOptions&, const Graph&,
                                  const std::vector<HostTensor>& inputs, const PlanOptions& = {});

}  // namespace lathe
