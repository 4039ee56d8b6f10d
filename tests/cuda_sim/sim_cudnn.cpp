// cuDNN's graph API: its entry points and the engines that it offers. Descriptors are checked in sim_cudnn_check.cpp; a
// graph is one convolution (sim_cudnn_conv.cpp) or whatever sim_cudnn_graph.cpp computes.
#include "sim_cudnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace lathe::sim {
namespace {

struct SimHandle {
  StreamHandle stream = nullptr;
};

int64_t workspace_of(const Bag& plan) {
  if (plan.engine == kHungry) return int64_t{1} << 40;
  const auto ops = operations_of(*plan.graph);
  return is_general(ops[0]->kind) ? general_workspace(ops) : conv_workspace(*ops[0]);
}

Bag& bag(void* p) { return *static_cast<Bag*>(p); }

}  // namespace

size_t sim_cudnnGetVersion() { return static_cast<size_t>(version_of("CUDNN", 91900)); }
const char* sim_cudnnGetErrorString(int status) {
  return status == kDnnSuccess ? "CUDNN_STATUS_SUCCESS"
         : status < 3000       ? "CUDNN_STATUS_BAD_PARAM"
         : status < 4000       ? "CUDNN_STATUS_NOT_SUPPORTED"
                               : "CUDNN_STATUS_EXECUTION_FAILED";
}
void sim_cudnnGetLastErrorString(char* message, size_t bytes) {
  std::snprintf(message, bytes, "%s", state().last_report.c_str());
}
int sim_cudnnCreate(DnnHandle* handle) {
  trace_call("make", "cudnnCreate");
  const Lock lock(state().mutex);
  if (!in_context()) return kDnnNotInitialized;
  auto made = std::make_unique<SimHandle>();
  state().handles.insert(made.get());
  *handle = reinterpret_cast<DnnHandle>(made.release());
  return kDnnSuccess;
}
int sim_cudnnDestroy(DnnHandle handle) {
  const Lock lock(state().mutex);
  if (!is_live(handle)) return wrong(kDnnBadParam, "no such handle");
  state().handles.erase(handle);
  const std::unique_ptr<SimHandle> owned(reinterpret_cast<SimHandle*>(handle));
  return kDnnSuccess;
}
int sim_cudnnSetStream(DnnHandle handle, StreamHandle stream) {
  const Lock lock(state().mutex);
  if (!is_live(handle) || !is_live(stream)) return wrong(kDnnBadParam, "no such handle or stream");
  reinterpret_cast<SimHandle*>(handle)->stream = stream;
  return kDnnSuccess;
}
int sim_cudnnBackendCreateDescriptor(int type, DnnDescriptor* descriptor) {
  trace_call("make", "cudnnBackendCreateDescriptor");
  const Lock lock(state().mutex);
  auto made = std::make_unique<Bag>();
  made->kind = type;
  state().handles.insert(made.get());
  *descriptor = made.release();
  return kDnnSuccess;
}
int sim_cudnnBackendDestroyDescriptor(DnnDescriptor descriptor) {
  const Lock lock(state().mutex);
  if (!is_live(descriptor)) return wrong(kDnnBadParam, "no such descriptor to destroy");
  state().handles.erase(descriptor);
  const std::unique_ptr<Bag> owned(static_cast<Bag*>(descriptor));
  return kDnnSuccess;
}
int sim_cudnnBackendSetAttribute(DnnDescriptor descriptor, int name, int type, int64_t count, const void* data) {
  const Lock lock(state().mutex);
  if (!is_live(descriptor)) return wrong(kDnnBadParam, "no such descriptor");
  Bag& b = bag(descriptor);
  if (b.finalized) return wrong(kDnnBadParam, fmt::format("attribute {} of a finished descriptor", name));
  if (!takes_type(name, type))
    return wrong(kDnnBadParamAttributeType, fmt::format("attribute {} with type {}", name, type));
  if (count < 0 || (count > 0 && !data)) return wrong(kDnnBadParamNullPointer, fmt::format("attribute {}", name));
  Attribute a{type, count, {}};
  a.bytes.assign(static_cast<const char*>(data),
                 static_cast<const char*>(data) + static_cast<size_t>(count) * attribute_bytes(type));
  b.attributes[name] = std::move(a);
  return kDnnSuccess;
}
int sim_cudnnBackendFinalize(DnnDescriptor descriptor) {
  const Lock lock(state().mutex);
  if (!is_live(descriptor)) return wrong(kDnnBadParam, "no such descriptor");
  const int status = finalize(bag(descriptor));
  bag(descriptor).finalized = status == kDnnSuccess;
  return status;
}
int sim_cudnnBackendGetAttribute(DnnDescriptor descriptor, int name, int type, int64_t wanted, int64_t* count,
                                 void* data) {
  const Lock lock(state().mutex);
  if (!is_live(descriptor)) return wrong(kDnnBadParam, "no such descriptor");
  const Bag& b = bag(descriptor);
  if (b.kind == kEngineHeurDescriptor && name == kHeurResults && type == kTypeDescriptor && b.finalized) {
    *count = std::min<int64_t>(wanted, kEngines);
    for (int64_t i = 0; i < *count; ++i) {
      void* p = static_cast<void**>(data)[i];
      if (!is_live(p) || bag(p).kind != kEngineConfigDescriptor)
        return wrong(kDnnBadParam, "results go into configurations that the caller made");
      bag(p).engine = static_cast<int>(i);
      bag(p).graph = child(b, kHeurGraph);
      bag(p).finalized = true;
    }
    return kDnnSuccess;
  }
  if (b.kind == kEngineConfigDescriptor && name == kConfigEngine && type == kTypeDescriptor && b.engine >= 0) {
    void* p = *static_cast<void**>(data);
    if (!is_live(p) || bag(p).kind != kEngineDescriptor)
      return wrong(kDnnBadParam, "the engine goes into a descriptor that the caller made");
    bag(p).engine = b.engine;
    bag(p).finalized = true;
    *count = 1;
    return kDnnSuccess;
  }
  if (b.kind == kEngineDescriptor && name == kEngineNumericalNote && type == kTypeNumericalNote && b.engine >= 0) {
    *count = 0;
    const int note = b.engine == kNondeterministic ? kNoteNondeterministic
                     : b.engine == kTensorCore     ? kNoteTensorCore
                                                   : -1;
    if (note >= 0 && wanted > 0) {
      std::memcpy(data, &note, 4);
      *count = 1;
    }
    return kDnnSuccess;
  }
  if (b.kind == kExecutionPlanDescriptor && name == kPlanWorkspace && type == kTypeInt64 && b.finalized) {
    const int64_t bytes = workspace_of(b);
    std::memcpy(data, &bytes, 8);
    *count = 1;
    return kDnnSuccess;
  }
  return wrong(kDnnNotSupported, fmt::format("attribute {} of descriptor kind {} asked for", name, b.kind));
}

int sim_cudnnBackendExecute(DnnHandle handle, DnnDescriptor plan, DnnDescriptor pack) {
  const Lock lock(state().mutex);
  if (!is_live(handle) || !is_live(plan) || !is_live(pack) || !bag(plan).finalized || !bag(pack).finalized)
    return wrong(kDnnBadParamNotFinalized, "cudnnBackendExecute");
  const Bag &p = bag(plan), &v = bag(pack);
  const auto uids = values<int64_t>(v, kPackUids);
  const auto pointers = values<char*>(v, kPackPointers);
  const auto pointer = [&](const Bag& t) -> char* {
    const auto at = std::ranges::find(uids, value<int64_t>(t, kTensorUid));
    return at == uids.end() ? nullptr : pointers[static_cast<size_t>(at - uids.begin())];
  };
  const auto workspace = value<char*>(v, kPackWorkspace);
  const StreamHandle stream = reinterpret_cast<SimHandle*>(handle)->stream;
  const auto ops = operations_of(*p.graph);
  GraphRun run;
  const bool general = is_general(ops[0]->kind);
  const int prepared = general ? prepare_general(ops, pointer, &run) : prepare_conv(*ops[0], p.engine, pointer, &run);
  if (prepared != kDnnSuccess) return prepared;
  ++(general ? state().counters.operation_graphs : state().counters.convolutions);
  const auto needed = static_cast<size_t>(workspace_of(p));
  run.accesses.push_back({reinterpret_cast<Address>(workspace), needed, true});
  const int status =
      submit(stream, {run.name, [=](std::vector<Access>& touched) {
                        for (const Access& a : run.accesses)
                          if (const int s = check_range("cudnnBackendExecute", a.address, a.bytes); s != kSuccess)
                            return s;
                        std::memset(workspace, 0xFF, needed);
                        run.work();
                        touched = run.accesses;
                        return static_cast<int>(kSuccess);
                      }});
  return status == kSuccess ? kDnnSuccess : kDnnExecutionFailed;
}

}  // namespace lathe::sim
