// cuDNN's graph API: descriptors are checked when they are finalized; a graph is one convolution, computed from the
// tensors' sizes and strides, or whatever sim_cudnn_graph.cpp computes.
#include "sim_cudnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace lathe::sim {
namespace {

constexpr int64_t kGeneralWorkspace = 256;

struct SimHandle {
  StreamHandle stream = nullptr;
};

// The engines that the heuristic offers, best first, and why a careful caller passes the first four by.
enum Engine { kNondeterministic, kTensorCore, kHungry, kRefuses, kPlain, kEngines };

const std::map<int, int> kTypes{{kConvCompType, kTypeDataType},
                                {kConvMode, kTypeConvolutionMode},
                                {kConvDilations, kTypeInt64},
                                {kConvStrides, kTypeInt64},
                                {kConvPostPaddings, kTypeInt64},
                                {kConvPrePaddings, kTypeInt64},
                                {kConvSpatialDims, kTypeInt64},
                                {kHeurMode, kTypeHeurMode},
                                {kHeurGraph, kTypeDescriptor},
                                {kPlanHandle, kTypeHandle},
                                {kPlanConfig, kTypeDescriptor},
                                {kGraphHandle, kTypeHandle},
                                {kGraphOps, kTypeDescriptor},
                                {kTensorAlignment, kTypeInt64},
                                {kTensorType, kTypeDataType},
                                {kTensorDims, kTypeInt64},
                                {kTensorStrides, kTypeInt64},
                                {kTensorUid, kTypeInt64},
                                {kPackUids, kTypeInt64},
                                {kPackPointers, kTypeVoidPtr},
                                {kPackWorkspace, kTypeVoidPtr},
                                {kForwardConv, kTypeDescriptor},
                                {kForwardW, kTypeDescriptor},
                                {kForwardX, kTypeDescriptor},
                                {kForwardY, kTypeDescriptor},
                                {kBwdDataConv, kTypeDescriptor},
                                {kBwdDataW, kTypeDescriptor},
                                {kBwdDataDx, kTypeDescriptor},
                                {kBwdDataDy, kTypeDescriptor},
                                {kBwdFilterConv, kTypeDescriptor},
                                {kBwdFilterDw, kTypeDescriptor},
                                {kBwdFilterX, kTypeDescriptor},
                                {kBwdFilterDy, kTypeDescriptor},
                                {kPointwiseMode, kTypePointwiseMode},
                                {kPointwisePrecision, kTypeDataType},
                                {kPointwiseAxis, kTypeInt64},
                                {kPointwiseOpMode, kTypeDescriptor},
                                {kPointwiseOpX, kTypeDescriptor},
                                {kPointwiseOpB, kTypeDescriptor},
                                {kPointwiseOpY, kTypeDescriptor},
                                {kPointwiseOpT, kTypeDescriptor},
                                {kTensorIsVirtual, kTypeBoolean},
                                {kTensorIsByValue, kTypeBoolean},
                                {kMatmulCompType, kTypeDataType},
                                {kMatmulOpA, kTypeDescriptor},
                                {kMatmulOpB, kTypeDescriptor},
                                {kMatmulOpC, kTypeDescriptor},
                                {kMatmulOpDesc, kTypeDescriptor},
                                {kReductionOperator, kTypeReductionOperator},
                                {kReductionCompType, kTypeDataType},
                                {kReductionOpX, kTypeDescriptor},
                                {kReductionOpY, kTypeDescriptor},
                                {kReductionOpDesc, kTypeDescriptor},
                                {kReshapeOpX, kTypeDescriptor},
                                {kReshapeOpY, kTypeDescriptor}};
bool is_scale(int name) {
  return name == kForwardAlpha || name == kForwardBeta || name == kBwdDataAlpha || name == kBwdDataBeta ||
         name == kBwdFilterAlpha || name == kBwdFilterBeta;
}

size_t size_of_type(int type) {
  switch (type) {
    case kTypeBoolean: return 1;
    case kTypeDataType:
    case kTypeFloat:
    case kTypeConvolutionMode:
    case kTypeHeurMode:
    case kTypePointwiseMode:
    case kTypeReductionOperator:
    case kTypeNumericalNote: return 4;
    default: return 8;
  }
}

// A convolution with its three tensors, whichever of them is the result.
struct Problem {
  const Bag *conv = nullptr, *x = nullptr, *w = nullptr, *y = nullptr;
  double alpha = 1, beta = 0;
  int result = 0;  // 0: y, 1: x, 2: w
  bool double_scale = false;
};

Problem problem_of(const Bag& op) {
  Problem p;
  int alpha = 0, beta = 0;
  if (op.kind == kConvForwardDescriptor) {
    p = {child(op, kForwardConv), child(op, kForwardX), child(op, kForwardW), child(op, kForwardY), 1, 0, 0, false};
    alpha = kForwardAlpha, beta = kForwardBeta;
  } else if (op.kind == kConvBwdDataDescriptor) {
    p = {child(op, kBwdDataConv), child(op, kBwdDataDx), child(op, kBwdDataW), child(op, kBwdDataDy), 1, 0, 1, false};
    alpha = kBwdDataAlpha, beta = kBwdDataBeta;
  } else {
    p = {child(op, kBwdFilterConv),
         child(op, kBwdFilterX),
         child(op, kBwdFilterDw),
         child(op, kBwdFilterDy),
         1,
         0,
         2,
         false};
    alpha = kBwdFilterAlpha, beta = kBwdFilterBeta;
  }
  const auto at = op.attributes.find(alpha);
  p.double_scale = at != op.attributes.end() && at->second.type == kTypeDouble;
  p.alpha = p.double_scale ? value<double>(op, alpha, 1) : static_cast<double>(value<float>(op, alpha, 1));
  p.beta = p.double_scale ? value<double>(op, beta, 0) : static_cast<double>(value<float>(op, beta, 0));
  return p;
}

int finalize_tensor(const Bag& b) {
  const auto dims = values<int64_t>(b, kTensorDims), strides = values<int64_t>(b, kTensorStrides);
  if (dims.size() != 4 || strides.size() != 4)
    return wrong(kDnnBadParam, fmt::format("a tensor of {} sizes and {} strides", dims.size(), strides.size()));
  for (size_t i = 0; i < 4; ++i)
    if (dims[i] <= 0 || strides[i] <= 0)
      return wrong(kDnnBadParamOutOfBound, fmt::format("size {} with stride {}", dims[i], strides[i]));
  const int type = value<int>(b, kTensorType, -1);
  const bool inside = value<char>(b, kTensorIsVirtual) && (type == kDnnInt32 || type == kDnnBool);
  if (cuda_type(type) < 0 && !inside)
    return wrong(kDnnNotSupportedDataType, fmt::format("tensor type {}", value<int>(b, kTensorType, -1)));
  if (value<int64_t>(b, kTensorAlignment) <= 0 || b.attributes.count(kTensorUid) == 0)
    return wrong(kDnnBadParam, "a tensor without alignment or number");
  return kDnnSuccess;
}

int finalize_operation(const Bag& b) {
  const Problem p = problem_of(b);
  for (const Bag* c : {p.conv, p.x, p.w, p.y})
    if (!c || !c->finalized) return wrong(kDnnBadParamNotFinalized, "a convolution with an unfinished part");
  const auto x = values<int64_t>(*p.x, kTensorDims), w = values<int64_t>(*p.w, kTensorDims),
             y = values<int64_t>(*p.y, kTensorDims);
  const auto stride = values<int64_t>(*p.conv, kConvStrides), dilation = values<int64_t>(*p.conv, kConvDilations);
  const auto before = values<int64_t>(*p.conv, kConvPrePaddings), after = values<int64_t>(*p.conv, kConvPostPaddings);
  if (x[0] != y[0] || w[0] != y[1] || x[1] % w[1] != 0 || w[0] % (x[1] / w[1]) != 0)
    return wrong(kDnnBadParamShapeMismatch,
                 fmt::format("x {}x{}, w {}x{}, y {}x{}", x[0], x[1], w[0], w[1], y[0], y[1]));
  for (size_t i = 0; i < 2; ++i) {
    const int64_t out = (x[i + 2] + before[i] + after[i] - ((w[i + 2] - 1) * dilation[i] + 1)) / stride[i] + 1;
    if (out != y[i + 2])
      return wrong(kDnnBadParamShapeMismatch, fmt::format("y has size {}, the convolution gives {}", y[i + 2], out));
  }
  const int type = value<int>(*p.x, kTensorType), compute = value<int>(*p.conv, kConvCompType);
  if (type != value<int>(*p.w, kTensorType) || type != value<int>(*p.y, kTensorType))
    return wrong(kDnnNotSupportedDataType, "tensors of several types");
  if (compute != (type == kDnnDouble ? kDnnDouble : kDnnFloat))
    return wrong(kDnnNotSupportedDataType, fmt::format("type {} computed in {}", type, compute));
  if (p.double_scale != (type == kDnnDouble))
    return wrong(kDnnBadParamAttributeType, "alpha of another type than the arithmetic");
  return kDnnSuccess;
}

std::vector<const Bag*> operations_of(const Bag& graph) {
  std::vector<const Bag*> out;
  for (const void* p : values<const void*>(graph, kGraphOps))
    out.push_back(is_live(p) ? static_cast<const Bag*>(p) : nullptr);
  return out;
}

bool card_has_engine(const Bag& graph) {
  if (is_general(operations_of(graph)[0]->kind)) return capability() >= 80;
  if (has_flag("NO_ENGINE")) return false;
  const Bag& w = *problem_of(*child(graph, kGraphOps)).w;
  return value<int>(w, kTensorType, -1) != kDnnBfloat16 || capability() >= 80;
}

int finalize(Bag& b) {
  switch (b.kind) {
    case kTensorDescriptor: return finalize_tensor(b);
    case kConvolutionDescriptor: {
      const auto dims = static_cast<size_t>(value<int64_t>(b, kConvSpatialDims));
      for (const int name : {kConvDilations, kConvStrides, kConvPrePaddings, kConvPostPaddings})
        if (values<int64_t>(b, name).size() != dims || dims != 2)
          return wrong(kDnnBadParam, "a convolution that lacks sizes");
      if (value<int>(b, kConvMode, -1) != kCrossCorrelation)
        return wrong(kDnnNotSupported, "a convolution with a flipped kernel");
      return kDnnSuccess;
    }
    case kConvForwardDescriptor:
    case kConvBwdDataDescriptor:
    case kConvBwdFilterDescriptor: return finalize_operation(b);
    case kPointwiseDescriptor:
    case kMatmulDescriptor:
    case kReductionDescriptor: return kDnnSuccess;
    case kPointwiseOperation:
    case kMatmulOperation:
    case kReductionOperation:
    case kReshapeOperation: return finalize_general(b);
    case kOperationGraphDescriptor: {
      if (!is_live(value<const void*>(b, kGraphHandle))) return wrong(kDnnBadParam, "a graph without a handle");
      const auto ops = operations_of(b);
      for (const Bag* op : ops)
        if (!op || !op->finalized) return wrong(kDnnBadParamNotFinalized, "a graph with an unfinished operation");
      if (!ops.empty() && is_general(ops[0]->kind)) return check_general(ops);
      if (ops.size() != 1) return wrong(kDnnNotSupported, "a graph that is not one convolution");
      return kDnnSuccess;
    }
    case kEngineHeurDescriptor: {
      const Bag* graph = child(b, kHeurGraph);
      const int mode = value<int>(b, kHeurMode, -1);
      if (!graph || !graph->finalized || (mode != kHeurA && mode != kHeurFallback))
        return wrong(kDnnBadParam, "a heuristic without graph or mode");
      return kDnnSuccess;
    }
    case kExecutionPlanDescriptor: {
      const Bag* config = child(b, kPlanConfig);
      if (!config || config->engine < 0) return wrong(kDnnBadParamNotFinalized, "a plan without a configuration");
      if (config->engine == kRefuses || !card_has_engine(*config->graph)) return kDnnNotSupported;
      b.engine = config->engine;
      b.graph = config->graph;
      return kDnnSuccess;
    }
    case kVariantPackDescriptor:
      if (values<int64_t>(b, kPackUids).size() != values<void*>(b, kPackPointers).size())
        return wrong(kDnnBadParam, "numbers and pointers differ in count");
      return kDnnSuccess;
  }
  return wrong(kDnnNotSupported, fmt::format("descriptor kind {}", b.kind));
}

int64_t workspace_of(const Bag& plan) {
  if (plan.engine == kHungry) return int64_t{1} << 40;
  if (is_general(operations_of(*plan.graph)[0]->kind)) return kGeneralWorkspace;
  return static_cast<int64_t>(span_of(*problem_of(*child(*plan.graph, kGraphOps)).w));
}

// Dense copies in the order N C H W.
struct Tensor {
  std::vector<int64_t> dims, strides;
  int type = 0;
  char* data = nullptr;
  std::vector<double> numbers;

  Tensor(const Bag& b, char* memory)
      : dims(values<int64_t>(b, kTensorDims)),
        strides(values<int64_t>(b, kTensorStrides)),
        type(cuda_type(value<int>(b, kTensorType))),
        data(memory) {
    numbers.resize(static_cast<size_t>(dims[0] * dims[1] * dims[2] * dims[3]));
  }
  template <class F>
  void each(F&& f) {
    size_t at = 0;
    for (int64_t a = 0; a < dims[0]; ++a)
      for (int64_t b = 0; b < dims[1]; ++b)
        for (int64_t c = 0; c < dims[2]; ++c)
          for (int64_t d = 0; d < dims[3]; ++d)
            f(numbers[at++], a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]);
  }
  void load() {
    each([&](double& v, int64_t at) { v = load_number(data, at, type); });
  }
  void store(double alpha, double beta) {
    each([&](double v, int64_t at) {
      store_number(data, at, type, alpha * v + (beta != 0 ? beta * load_number(data, at, type) : 0));
    });
  }
};

void convolve(const Bag& conv, int result, Tensor& x, Tensor& w, Tensor& y) {
  const auto stride = values<int64_t>(conv, kConvStrides), dilation = values<int64_t>(conv, kConvDilations),
             pad = values<int64_t>(conv, kConvPrePaddings);
  const int64_t groups = x.dims[1] / w.dims[1], per = w.dims[0] / groups, C = w.dims[1], R = w.dims[2], S = w.dims[3];
  const int64_t H = x.dims[2], W = x.dims[3], P = y.dims[2], Q = y.dims[3];
  Tensor& out = result == 0 ? y : result == 1 ? x : w;
  std::ranges::fill(out.numbers, 0.0);
  for (int64_t n = 0; n < x.dims[0]; ++n)
    for (int64_t o = 0; o < w.dims[0]; ++o)
      for (int64_t c = 0; c < C; ++c)
        for (int64_t r = 0; r < R; ++r)
          for (int64_t s = 0; s < S; ++s) {
            double& weight = w.numbers[static_cast<size_t>(((o * C + c) * R + r) * S + s)];
            for (int64_t p = 0; p < P; ++p) {
              const int64_t h = p * stride[0] - pad[0] + r * dilation[0];
              if (h < 0 || h >= H) continue;
              double* xs = &x.numbers[static_cast<size_t>(((n * x.dims[1] + o / per * C + c) * H + h) * W)];
              double* ys = &y.numbers[static_cast<size_t>(((n * w.dims[0] + o) * P + p) * Q)];
              for (int64_t q = 0; q < Q; ++q) {
                const int64_t col = q * stride[1] - pad[1] + s * dilation[1];
                if (col < 0 || col >= W) continue;
                if (result == 0)
                  ys[q] += xs[col] * weight;
                else if (result == 1)
                  xs[col] += ys[q] * weight;
                else
                  weight += xs[col] * ys[q];
              }
            }
          }
}

// A graph that is not a convolution.
int execute_general(StreamHandle stream, const Bag& plan, const std::function<char*(const Bag&)>& pointer,
                    char* workspace) {
  GeneralRun run;
  if (const int status = prepare_general(operations_of(*plan.graph), pointer, &run); status != kDnnSuccess)
    return status;
  ++state().counters.operation_graphs;
  run.accesses.push_back({reinterpret_cast<Address>(workspace), kGeneralWorkspace, true});
  const int status =
      submit(stream, {"cudnn operation graph", [=](std::vector<Access>& touched) {
                        for (const Access& a : run.accesses)
                          if (const int s = check_range("cudnnBackendExecute", a.address, a.bytes); s != kSuccess)
                            return s;
                        std::memset(workspace, 0xFF, kGeneralWorkspace);
                        run.work();
                        touched = run.accesses;
                        return static_cast<int>(kSuccess);
                      }});
  return status == kSuccess ? kDnnSuccess : kDnnExecutionFailed;
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
  const auto expected = kTypes.find(name);
  const bool right =
      is_scale(name) ? type == kTypeFloat || type == kTypeDouble : expected != kTypes.end() && expected->second == type;
  if (!right) return wrong(kDnnBadParamAttributeType, fmt::format("attribute {} with type {}", name, type));
  if (count < 0 || (count > 0 && !data)) return wrong(kDnnBadParamNullPointer, fmt::format("attribute {}", name));
  Attribute a{type, count, {}};
  a.bytes.assign(static_cast<const char*>(data),
                 static_cast<const char*>(data) + static_cast<size_t>(count) * size_of_type(type));
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
  if (is_general(child(*p.graph, kGraphOps)->kind)) return execute_general(stream, p, pointer, workspace);
  const Problem problem = problem_of(*child(*p.graph, kGraphOps));
  std::vector<Access> all;
  const Bag* tensors[3] = {problem.y, problem.x, problem.w};
  for (int i = 0; i < 3; ++i) {
    char* data = pointer(*tensors[i]);
    if (!data) return wrong(kDnnBadParamNullPointer, "the pack has no pointer for a tensor");
    if (reinterpret_cast<Address>(data) % static_cast<Address>(value<int64_t>(*tensors[i], kTensorAlignment)) != 0)
      return wrong(kDnnBadParamMisaligned, "a tensor is not aligned as its descriptor says");
    all.push_back({reinterpret_cast<Address>(data), span_of(*tensors[i]), i == problem.result});
  }
  const auto needed = static_cast<size_t>(workspace_of(p));
  all.push_back({reinterpret_cast<Address>(workspace), needed, true});
  // Everything is copied: descriptors may be gone when a captured graph runs.
  Tensor x(*problem.x, pointer(*problem.x)), w(*problem.w, pointer(*problem.w)), y(*problem.y, pointer(*problem.y));
  const Bag conv = *problem.conv;
  const int result = problem.result, engine = p.engine;
  const double alpha = problem.alpha, beta = problem.beta;
  ++state().counters.convolutions;
  const int status = submit(
      stream, {result == 0   ? "cudnn convolution"
               : result == 1 ? "cudnn convolution, data gradient"
                             : "cudnn convolution, weight gradient",
               [=](std::vector<Access>& touched) mutable {
                 for (const Access& a : all)
                   if (const int s = check_range("cudnnBackendExecute", a.address, a.bytes); s != kSuccess) return s;
                 std::memset(workspace, 0xFF, needed);
                 if (result != 1) x.load();
                 if (result != 2) w.load();
                 if (result != 0) y.load();
                 if (engine == kTensorCore && x.type == kR32F)  // TF32; double precision has tensor cores of its own
                   for (Tensor* t : {&x, &w, &y})
                     for (double& number : t->numbers) number = round_bits(static_cast<float>(number), 13);
                 convolve(conv, result, x, w, y);
                 (result == 0 ? y : result == 1 ? x : w).store(alpha, beta);
                 touched.insert(touched.end(), all.begin(), all.end());
                 return static_cast<int>(kSuccess);
               }});
  return status == kSuccess ? kDnnSuccess : kDnnExecutionFailed;
}

}  // namespace lathe::sim
