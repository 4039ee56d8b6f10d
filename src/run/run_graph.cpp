#include "run/run_graph.h"

#include <cstring>

namespace lathe {

std::vector<std::byte> to_bytes(const HostTensor& t) {
  LATHE_USER_CHECK(static_cast<int64_t>(t.data.size()) == t.type.numel(), "expected the elements of {}, got {}",
                   to_string(t.type), t.data.size());
  std::vector<std::byte> out(static_cast<size_t>(t.type.bytes()));
  dispatch(t.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < t.data.size(); ++i) {
      const T x = static_cast<T>(round_to(t.type.dtype, t.data[i]));
      std::memcpy(out.data() + i * sizeof(T), &x, sizeof(T));
    }
  });
  return out;
}

HostTensor from_bytes(const TensorType& type, std::span<const std::byte> bytes) {
  LATHE_USER_CHECK(static_cast<int64_t>(bytes.size()) == type.bytes(), "expected the bytes of {}, got {}",
                   to_string(type), bytes.size());
  HostTensor t{type, std::vector<double>(static_cast<size_t>(type.numel()))};
  dispatch(type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < t.data.size(); ++i) {
      T x;
      std::memcpy(&x, bytes.data() + i * sizeof(T), sizeof(T));
      t.data[i] = static_cast<double>(x);
    }
  });
  return t;
}

BoundProgram::BoundProgram(Device& device, const Program& program) : device_(device), program_(program) {
  for (const Launch& l : program.launches)
    kernels_.push_back(l.candidate.bind(device, Site{l.node, l.in, l.out, device.target()}, l.args));
}

std::vector<HostTensor> BoundProgram::run(const std::vector<HostTensor>& inputs) {
  LATHE_USER_CHECK(inputs.size() == program_.inputs.size(), "program \"{}\": expected {} inputs, got {}", program_.name,
                   program_.inputs.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Port& p = program_.inputs[i];
    LATHE_USER_CHECK(inputs[i].type == p.type && static_cast<int64_t>(inputs[i].data.size()) == p.type.numel(),
                     "program \"{}\", input \"{}\": expected {}, got {} with {} elements", program_.name, p.name,
                     to_string(p.type), to_string(inputs[i].type), inputs[i].data.size());
  }
  Stream& stream = device_.stream(Lane::compute);
  std::vector<std::vector<std::byte>> staged;
  for (size_t i = 0; i < inputs.size(); ++i) {
    staged.push_back(to_bytes(inputs[i]));
    if (!staged.back().empty()) stream.copy_in(program_.inputs[i].buffer, staged.back().data());
  }
  for (const auto& k : kernels_) k->run(stream);
  for (const FinalCopy& c : program_.final_copies) stream.copy(c.dst, c.src);
  std::vector<HostTensor> results;
  for (const Port& p : program_.outputs) {
    std::vector<std::byte> bytes(static_cast<size_t>(p.type.bytes()));
    if (!bytes.empty()) stream.copy_out(bytes.data(), p.buffer);
    stream.synchronize();
    results.push_back(from_bytes(p.type, bytes));
  }
  stream.synchronize();
  return results;
}

std::vector<HostTensor> run_graph(const Backend& backend, const DeviceOptions& options, const Graph& g,
                                  const std::vector<HostTensor>& inputs, const PlanOptions& plan_options) {
  const std::unique_ptr<Device> device = backend.open(options);
  const ProgramSet set = plan({g}, device->target(), backend.kernels(), plan_options);
  device->allocate(set.segments);
  return BoundProgram(*device, set.programs[0]).run(inputs);
}

}  // namespace lathe
