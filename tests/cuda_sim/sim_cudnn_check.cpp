// Rules of cuDNN's descriptors: which type an attribute has, and what must hold when a descriptor is finalized.
#include <fmt/format.h>

#include <map>

#include "sim_cudnn.h"

namespace lathe::sim {
namespace {

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

}  // namespace

bool takes_type(int name, int type) {
  if (is_scale(name)) return type == kTypeFloat || type == kTypeDouble;
  const auto expected = kTypes.find(name);
  return expected != kTypes.end() && expected->second == type;
}

size_t attribute_bytes(int type) {
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

std::vector<const Bag*> operations_of(const Bag& graph) {
  std::vector<const Bag*> out;
  for (const void* p : values<const void*>(graph, kGraphOps))
    out.push_back(is_live(p) ? static_cast<const Bag*>(p) : nullptr);
  return out;
}

namespace {
bool card_has_engine(const Bag& graph) {
  if (has_flag("NO_ENGINE")) return false;
  const Bag& first = *operations_of(graph)[0];
  constexpr int kFused = 80;  // the first card that has attention
  return is_general(first.kind) ? capability() >= kFused : conv_has_engine(first);
}
}  // namespace

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
    case kConvBwdFilterDescriptor: return finalize_conv(b);
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

}  // namespace lathe::sim
