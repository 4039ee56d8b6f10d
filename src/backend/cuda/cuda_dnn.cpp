#include "backend/cuda/cuda_dnn.h"

#include <algorithm>
#include <utility>

namespace lathe {

DnnDescriptor::DnnDescriptor(const cuda::Api& api, int kind) : api_(&api) {
  LATHE_CUDNN(*api_, cudnnBackendCreateDescriptor(kind, &handle_));
}
DnnDescriptor::DnnDescriptor(DnnDescriptor&& o) noexcept : api_(o.api_), handle_(std::exchange(o.handle_, nullptr)) {}
DnnDescriptor& DnnDescriptor::operator=(DnnDescriptor&& o) noexcept {
  std::swap(api_, o.api_);
  std::swap(handle_, o.handle_);
  return *this;
}
DnnDescriptor::~DnnDescriptor() {
  if (handle_) api_->cudnnBackendDestroyDescriptor(handle_);
}

DnnDescriptor& DnnDescriptor::set_many(int name, int type, int64_t count, const void* values) {
  LATHE_CUDNN(*api_, cudnnBackendSetAttribute(handle_, name, type, count, values));
  return *this;
}
DnnDescriptor& DnnDescriptor::finish() {
  LATHE_CUDNN(*api_, cudnnBackendFinalize(handle_));
  return *this;
}

DnnGraph::DnnGraph(CudaDevice& device) : device_(device) { device.enter(); }

const DnnDescriptor& DnnGraph::add_tensor(int type, const Dims& dims, const Dims& strides, int flag,
                                          const void* pointer) {
  DnnDescriptor& t = part(cuda::kTensorDescriptor);
  const int64_t number = next_number_++;
  t.set(cuda::kTensorType, cuda::kTypeDataType, type)
      .set(cuda::kTensorDims, dims)
      .set(cuda::kTensorStrides, strides)
      .set(cuda::kTensorUid, cuda::kTypeInt64, number)
      .set(cuda::kTensorAlignment, cuda::kTypeInt64, int64_t{16});
  if (flag >= 0) t.set(flag, cuda::kTypeBoolean, true);
  if (pointer) {
    numbers_.push_back(number);
    pointers_.push_back(pointer);
  }
  return t.finish();
}

const DnnDescriptor& DnnGraph::tensor(int type, const Dims& dims, const Dims& strides, cuda::Address address) {
  return add_tensor(type, dims, strides, -1, reinterpret_cast<const void*>(address));
}
const DnnDescriptor& DnnGraph::inner(int type, const Dims& dims, const Dims& strides) {
  return add_tensor(type, dims, strides, cuda::kTensorIsVirtual, nullptr);
}
const DnnDescriptor& DnnGraph::scalar(float value) {
  return add_tensor(cuda::kDnnFloat, {1, 1, 1, 1}, {1, 1, 1, 1}, cuda::kTensorIsByValue, &scalars_.emplace_back(value));
}

DnnDescriptor& DnnGraph::part(int kind) { return parts_.emplace_back(device_.api(), kind); }
DnnDescriptor& DnnGraph::operation(int kind) {
  DnnDescriptor& op = part(kind);
  operations_.push_back(op.handle());
  return op;
}

bool DnnGraph::numbers_fit(const DnnDescriptor& config, bool strict) const {
  const cuda::Api& api = device_.api();
  const DnnDescriptor engine(api, cuda::kEngineDescriptor);
  cuda::DnnDescriptor handle = engine.handle();
  int64_t count = 0;
  LATHE_CUDNN(
      api, cudnnBackendGetAttribute(config.handle(), cuda::kConfigEngine, cuda::kTypeDescriptor, 1, &count, &handle));
  int notes[cuda::kNoteCount] = {};
  LATHE_CUDNN(api, cudnnBackendGetAttribute(handle, cuda::kEngineNumericalNote, cuda::kTypeNumericalNote,
                                            cuda::kNoteCount, &count, notes));
  return std::none_of(notes, notes + std::min<int64_t>(count, cuda::kNoteCount), [&](int note) {
    return note == cuda::kNoteNondeterministic || note == cuda::kNoteReducedReduction ||
           (strict && (note == cuda::kNoteTensorCore || note == cuda::kNoteDownConvert));
  });
}

bool DnnGraph::choose(bool strict, cuda::Address workspace, int64_t workspace_bytes, int64_t* least) {
  const cuda::Api& api = device_.api();
  *least = -1;
  DnnDescriptor& graph = part(cuda::kOperationGraphDescriptor);
  graph.set(cuda::kGraphHandle, cuda::kTypeHandle, device_.cudnn())
      .set_many(cuda::kGraphOps, cuda::kTypeDescriptor, static_cast<int64_t>(operations_.size()), operations_.data());
  // A graph that no engine knows is refused here or below.
  if (api.cudnnBackendFinalize(graph.handle()) != cuda::kDnnSuccess) return false;
  for (const int mode : {cuda::kHeurA, cuda::kHeurFallback}) {
    DnnDescriptor heuristic(api, cuda::kEngineHeurDescriptor);
    heuristic.set(cuda::kHeurGraph, graph).set(cuda::kHeurMode, cuda::kTypeHeurMode, mode);
    if (api.cudnnBackendFinalize(heuristic.handle()) != cuda::kDnnSuccess) continue;
    constexpr int64_t kMost = 24;
    std::vector<DnnDescriptor> configs;
    std::vector<cuda::DnnDescriptor> handles;
    for (int64_t i = 0; i < kMost; ++i) {
      configs.emplace_back(api, cuda::kEngineConfigDescriptor);
      handles.push_back(configs.back().handle());
    }
    int64_t count = 0;
    LATHE_CUDNN(api, cudnnBackendGetAttribute(heuristic.handle(), cuda::kHeurResults, cuda::kTypeDescriptor, kMost,
                                              &count, handles.data()));
    // The library may count results that it had no room for.
    for (int64_t i = 0; i < std::min(count, kMost); ++i) {
      DnnDescriptor& config = configs[static_cast<size_t>(i)];
      if (!numbers_fit(config, strict)) continue;
      DnnDescriptor plan(api, cuda::kExecutionPlanDescriptor);
      plan.set(cuda::kPlanHandle, cuda::kTypeHandle, device_.cudnn()).set(cuda::kPlanConfig, config);
      if (api.cudnnBackendFinalize(plan.handle()) != cuda::kDnnSuccess) continue;
      int64_t needs = 0, one = 0;
      LATHE_CUDNN(api,
                  cudnnBackendGetAttribute(plan.handle(), cuda::kPlanWorkspace, cuda::kTypeInt64, 1, &one, &needs));
      if (needs > workspace_bytes) {
        *least = *least < 0 ? needs : std::min(*least, needs);
        continue;
      }
      parts_.push_back(std::move(config));
      plan_ = parts_.emplace_back(std::move(plan)).handle();
      pack_.emplace(api, cuda::kVariantPackDescriptor);
      const auto tensors = static_cast<int64_t>(numbers_.size());
      pack_->set_many(cuda::kPackUids, cuda::kTypeInt64, tensors, numbers_.data())
          .set_many(cuda::kPackPointers, cuda::kTypeVoidPtr, tensors, pointers_.data())
          .set(cuda::kPackWorkspace, cuda::kTypeVoidPtr, reinterpret_cast<void*>(workspace))
          .finish();
      return true;
    }
  }
  return false;
}

void DnnGraph::run() const { LATHE_CUDNN(device_.api(), cudnnBackendExecute(device_.cudnn(), plan_, pack_->handle())); }

std::string lacks_engine(int64_t workspace_bytes, int64_t least) {
  return least < 0 ? "no engine"
                   : fmt::format("no engine within {} bytes of workspace, {} are wanted", workspace_bytes, least);
}

}  // namespace lathe
