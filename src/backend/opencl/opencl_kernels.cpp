// Which node runs as which text of backend/kernels. A row accepts a node or says why not.
#include "backend/opencl/opencl_kernels.h"

#include <algorithm>

#include "backend/kernels/index_calls.h"
#include "backend/kernels/loop_calls.h"
#include "backend/kernels/matmul_calls.h"
#include "backend/opencl/opencl_device.h"
#include "ops/elementwise.h"
#include "ops/fused.h"

namespace lathe {
namespace {

std::string check_type(const Target& target, DType t) {
  if (std::ranges::find(target.dtypes, t) != target.dtypes.end()) return "";
  return fmt::format("the device does not compute in {}", to_string(t));
}

std::string check_types(const Site& s) {
  for (const Types* list : {&s.in, &s.out})
    for (const TensorType& t : *list)
      if (std::string reason = check_type(s.target, t.dtype); !reason.empty()) return reason;
  return "";
}

OpenClDevice& as_opencl(Device& d) { return static_cast<OpenClDevice&>(d); }

// --- loops: elementwise, cast, broadcast, full, reductions, fused ---------------------------------------------------

std::string accepts_loop(const Site& s) {
  if (std::string reason = check_types(s); !reason.empty()) return reason;
  std::string reason;
  const auto program = lower_loop(s.node, s.in, &reason);
  if (!program) return reason;
  for (const LoopSection* section : {&program->map, &program->tail})
    for (const ScalarInstr& i : section->instrs)
      if (std::string why = check_type(s.target, i.dtype); !why.empty()) return why;
  return "";
}

LoopNest nest_of(const Site& s) {
  auto program = lower_loop(s.node, s.in);
  LATHE_CHECK(program, "{} was not accepted", s.node.op->name());
  return make_nest(*program);
}

int64_t loop_bytes(const Site& s) { return loop_workspace(nest_of(s)); }

std::unique_ptr<Kernel> bind_loop(Device& d, const Site& s, const KernelArgs& args) {
  return as_opencl(d).bind(loop_calls(nest_of(s), as_opencl(d).style()), args);
}

// --- matmul ---------------------------------------------------------------------------------------------------------

std::unique_ptr<Kernel> bind_matmul(Device& d, const Site& s, const KernelArgs& args) {
  OpenClDevice& device = as_opencl(d);
  return device.bind(matmul_calls(s.out[0].dtype, s.in[0].shape, s.in[1].shape, s.node.get<MatmulParams>(),
                                  device.style(), device.vector_bytes()),
                     args);
}

// --- by index, and strided copies -----------------------------------------------------------------------------------

std::string accepts_scatter(const Site& s) {
  if (s.in[1].dtype == DType::u8) return "u8 sums would wrap";
  return check_types(s);
}

std::unique_ptr<Kernel> bind_index(Device& d, const Site& s, const KernelArgs& args) {
  return as_opencl(d).bind(index_calls(s.node, s.in, s.out, as_opencl(d).style()), args);
}

std::unique_ptr<Kernel> bind_copy(Device& d, const Site& s, const KernelArgs& args) {
  return as_opencl(d).bind(copy_calls(s.node, s.in, s.out, as_opencl(d).style()), args);
}

KernelTable make_table() {
  std::vector<KernelTable::Row> rows;
  const Candidate loop{"opencl_loop", accepts_loop, loop_bytes, bind_loop};
  for (const OpDef* op : elementwise_ops()) rows.push_back({op->name(), loop});
  for (const char* op : {"cast", "broadcast", "full", "reduce_sum", "reduce_max", "fused"}) rows.push_back({op, loop});
  rows.push_back({"matmul", {"opencl_matmul", check_types, nullptr, bind_matmul}});
  for (const char* op : {"iota", "gather", "arg_max", "random_uniform"})
    rows.push_back({op, {"opencl_index", check_types, nullptr, bind_index}});
  rows.push_back({"scatter_add", {"opencl_index", accepts_scatter, nullptr, bind_index}});
  for (const char* op : {"transpose", "slice", "pad", "concat", "reshape"})
    rows.push_back({op, {"opencl_copy", check_types, nullptr, bind_copy}});
  return KernelTable(std::move(rows));
}

}  // namespace

const KernelTable& opencl_kernels() {
  static const KernelTable table = make_table();
  return table;
}

}  // namespace lathe
