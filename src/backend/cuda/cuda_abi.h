// The part of NVIDIA's C interfaces that Lathe calls, declared here: driver, NVRTC, cuBLASLt, cuDNN's graph API, NVTX.
// So the build needs no toolkit and the binary links none. tests/cuda_sim/abi_check.cpp compares every value and
// signature with the real headers wherever they are installed (docs/decisions/0006-cuda-abi.md).
#pragma once

#include <cstddef>
#include <cstdint>

namespace lathe::cuda {

// Handles: opaque pointers, except device numbers and device addresses.
using DeviceId = int;
using Address = unsigned long long;
using Context = struct ContextTag*;
using StreamHandle = struct StreamTag*;
using EventHandle = struct EventTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using GraphHandle = struct GraphTag*;
using GraphExec = struct GraphExecTag*;
using RtcProgram = struct RtcProgramTag*;
using LtHandle = struct LtHandleTag*;
using LtMatmulDesc = struct LtMatmulDescTag*;
using LtLayout = struct LtLayoutTag*;
using LtPreference = struct LtPreferenceTag*;
using DnnHandle = struct DnnHandleTag*;
using DnnDescriptor = void*;

// Enumerations are passed as int; these are the values in use.
enum Result : int {
  kSuccess = 0,
  kErrorInvalidValue = 1,
  kErrorOutOfMemory = 2,
  kErrorNotInitialized = 3,
  kErrorNoDevice = 100,
  kErrorInvalidDevice = 101,
  kErrorInvalidImage = 200,
  kErrorInvalidContext = 201,
  kErrorNoBinaryForGpu = 209,
  kErrorEccUncorrectable = 214,
  kErrorInvalidHandle = 400,
  kErrorNotFound = 500,
  kErrorNotReady = 600,
  kErrorIllegalAddress = 700,
  kErrorLaunchOutOfResources = 701,
  kErrorMisalignedAddress = 716,
  kErrorLaunchFailed = 719,
  kErrorStreamCaptureUnsupported = 900,
  kErrorStreamCaptureInvalidated = 901,
  kErrorStreamCaptureUnmatched = 903,
  kErrorStreamCaptureIsolation = 905,
  kErrorCapturedEvent = 907,
  kErrorUnknown = 999,
};

enum DeviceAttribute : int {
  kMaxThreadsPerBlock = 1,
  kMaxGridX = 5,
  kMaxGridY = 6,
  kMaxGridZ = 7,
  kMaxSharedPerBlock = 8,
  kClockRate = 13,
  kMultiprocessors = 16,
  kMemoryClockRate = 36,
  kMemoryBusWidth = 37,
  kComputeMajor = 75,
  kComputeMinor = 76,
};

constexpr unsigned kStreamNonBlocking = 1, kEventDefault = 0, kEventDisableTiming = 2, kHostAllocPortable = 1;
constexpr int kCaptureThreadLocal = 1;

constexpr int kRtcSuccess = 0, kRtcErrorInvalidOption = 5, kRtcErrorCompilation = 6;

enum DataType : int { kR32F = 0, kR64F = 1, kR16F = 2, kR16BF = 14 };
enum LtStatus : int {
  kLtSuccess = 0,
  kLtNotInitialized = 1,
  kLtInvalidValue = 7,
  kLtArchMismatch = 8,
  kLtExecutionFailed = 13,
  kLtNotSupported = 15,
};
enum LtCompute : int { kCompute16F = 64, kCompute32F = 68, kCompute64F = 70, kCompute32FFastTf32 = 77 };
enum LtOperation : int { kOpN = 0, kOpT = 1 };
enum LtDescAttribute : int {
  kDescTransA = 3,
  kDescTransB = 4,
  kDescEpilogue = 7,
  kDescBiasPointer = 8,
  kDescAuxPointer = 11,
  kDescAuxLd = 12,
  kDescAuxBatchStride = 13,
  kDescBiasType = 26,
};
enum LtLayoutAttribute : int { kLayoutOrder = 1, kLayoutBatchCount = 5, kLayoutBatchStride = 6 };
enum LtPreferenceAttribute : int {
  kPrefMaxWorkspace = 1,
  kPrefReductionMask = 3,
  kPrefAlignA = 5,
  kPrefAlignB = 6,
  kPrefAlignC = 7,
  kPrefAlignD = 8,
};
// How the parts of a sum that was split along k are added: in the output itself, in the type of computation, in the
// output's type. Sums that are not split are always allowed.
enum LtReduction : uint32_t { kReductionInplace = 1, kReductionComputeType = 2, kReductionOutputType = 4 };
enum LtEpilogue : int {
  kEpilogueDefault = 1,
  kEpilogueRelu = 2,
  kEpilogueBias = 4,
  kEpilogueReluBias = 6,
  kEpilogueGelu = 32,
  kEpilogueGeluBias = 36,
  kEpilogueGeluAux = 160,
  kEpilogueGeluAuxBias = 164,
  kEpilogueDgelu = 192,
  kEpilogueDgeluBgrad = 208,
  kEpilogueBgradA = 256,
  kEpilogueBgradB = 512,
};

struct LtAlgo {
  uint64_t data[8];
};
struct LtHeuristicResult {
  LtAlgo algo;
  size_t workspace_size;
  int state;
  float waves_count;
  int reserved[4];
};

enum DnnStatus : int {
  kDnnSuccess = 0,
  kDnnNotInitialized = 1001,
  kDnnBadParam = 2000,
  kDnnBadParamNullPointer = 2002,
  kDnnBadParamMisaligned = 2003,
  kDnnBadParamNotFinalized = 2004,
  kDnnBadParamOutOfBound = 2005,
  kDnnBadParamSizeInsufficient = 2006,
  kDnnBadParamShapeMismatch = 2008,
  kDnnBadParamAttributeType = 2010,
  kDnnNotSupported = 3000,
  kDnnNotSupportedDataType = 3003,
  kDnnNotSupportedLayout = 3004,
  kDnnExecutionFailed = 5000,
};
enum DnnDataType : int { kDnnFloat = 0, kDnnDouble = 1, kDnnHalf = 2, kDnnInt32 = 4, kDnnBfloat16 = 9, kDnnBool = 11 };
enum DnnAttributeType : int {
  kTypeHandle = 0,
  kTypeDataType = 1,
  kTypeBoolean = 2,
  kTypeInt64 = 3,
  kTypeFloat = 4,
  kTypeDouble = 5,
  kTypeVoidPtr = 6,
  kTypeConvolutionMode = 7,
  kTypeHeurMode = 8,
  kTypeNumericalNote = 11,
  kTypePointwiseMode = 14,
  kTypeDescriptor = 15,
  kTypeReductionOperator = 18,
};
enum DnnDescriptorType : int {
  kPointwiseDescriptor = 0,
  kConvolutionDescriptor = 1,
  kEngineDescriptor = 2,
  kEngineConfigDescriptor = 3,
  kEngineHeurDescriptor = 4,
  kExecutionPlanDescriptor = 5,
  kConvForwardDescriptor = 10,
  kConvBwdFilterDescriptor = 11,
  kConvBwdDataDescriptor = 12,
  kPointwiseOperation = 13,
  kOperationGraphDescriptor = 15,
  kVariantPackDescriptor = 16,
  kTensorDescriptor = 17,
  kMatmulDescriptor = 18,
  kMatmulOperation = 19,
  kReductionDescriptor = 21,
  kReductionOperation = 22,
  kReshapeOperation = 31,
};
enum DnnAttribute : int {
  kPointwiseMode = 0,
  kPointwisePrecision = 1,
  kPointwiseAxis = 9,
  kConvCompType = 100,
  kConvMode = 101,
  kConvDilations = 102,
  kConvStrides = 103,
  kConvPostPaddings = 104,
  kConvPrePaddings = 105,
  kConvSpatialDims = 106,
  kHeurMode = 200,
  kHeurGraph = 201,
  kHeurResults = 202,
  kConfigEngine = 300,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConv = 702,
  kForwardW = 703,
  kForwardX = 704,
  kForwardY = 705,
  kBwdDataAlpha = 706,
  kBwdDataBeta = 707,
  kBwdDataConv = 708,
  kBwdDataW = 709,
  kBwdDataDx = 710,
  kBwdDataDy = 711,
  kBwdFilterAlpha = 712,
  kBwdFilterBeta = 713,
  kBwdFilterConv = 714,
  kBwdFilterDw = 715,
  kBwdFilterX = 716,
  kBwdFilterDy = 717,
  kPointwiseOpMode = 750,
  kPointwiseOpX = 751,
  kPointwiseOpB = 752,
  kPointwiseOpY = 753,
  kPointwiseOpT = 758,
  kGraphHandle = 800,
  kGraphOps = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorDims = 902,
  kTensorStrides = 903,
  kTensorUid = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kPackUids = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineNumericalNote = 1303,
  kMatmulCompType = 1500,
  kMatmulOpA = 1520,
  kMatmulOpB = 1521,
  kMatmulOpC = 1522,
  kMatmulOpDesc = 1523,
  kReductionOperator = 1600,
  kReductionCompType = 1601,
  kReductionOpX = 1610,
  kReductionOpY = 1611,
  kReductionOpDesc = 1612,
  kReshapeOpX = 2200,
  kReshapeOpY = 2201,
};
enum DnnPointwise : int {
  kPwAdd = 0,
  kPwMul = 1,
  kPwDiv = 6,
  kPwSub = 9,
  kPwExp = 13,
  kPwLog = 15,
  kPwGreaterEqual = 303,
  kPwIndex = 501,
  kPwSelect = 601,
};
enum DnnReduction : int { kReduceAdd = 0, kReduceMax = 3 };
enum DnnNote : int { kNoteTensorCore = 0, kNoteDownConvert = 1, kNoteReducedReduction = 2, kNoteNondeterministic = 4 };
constexpr int kNoteCount = 10;
enum DnnHeurMode : int { kHeurFallback = 2, kHeurA = 3 };
constexpr int kCrossCorrelation = 1;

}  // namespace lathe::cuda

// Every entry point: F(return type, symbol, parameters). Symbols are those that libraries export.
// Driver, CUDA 12.0 or newer.
#define LATHE_CUDA_DRIVER(F)                                                                                   \
  F(int, cuInit, (unsigned flags))                                                                             \
  F(int, cuDriverGetVersion, (int* version))                                                                   \
  F(int, cuGetErrorName, (int error, const char** name))                                                       \
  F(int, cuGetErrorString, (int error, const char** text))                                                     \
  F(int, cuDeviceGetCount, (int* count))                                                                       \
  F(int, cuDeviceGet, (DeviceId * device, int index))                                                          \
  F(int, cuDeviceGetName, (char* name, int length, DeviceId device))                                           \
  F(int, cuDeviceGetAttribute, (int* value, int attribute, DeviceId device))                                   \
  F(int, cuDeviceTotalMem_v2, (size_t * bytes, DeviceId device))                                               \
  F(int, cuDevicePrimaryCtxRetain, (Context * context, DeviceId device))                                       \
  F(int, cuDevicePrimaryCtxRelease_v2, (DeviceId device))                                                      \
  F(int, cuCtxSetCurrent, (Context context))                                                                   \
  F(int, cuMemGetInfo_v2, (size_t * free, size_t * total))                                                     \
  F(int, cuMemAlloc_v2, (Address * address, size_t bytes))                                                     \
  F(int, cuMemFree_v2, (Address address))                                                                      \
  F(int, cuMemHostAlloc, (void** memory, size_t bytes, unsigned flags))                                        \
  F(int, cuMemFreeHost, (void* memory))                                                                        \
  F(int, cuMemsetD8Async, (Address dst, unsigned char value, size_t bytes, StreamHandle stream))               \
  F(int, cuMemcpyHtoDAsync_v2, (Address dst, const void* src, size_t bytes, StreamHandle stream))              \
  F(int, cuMemcpyDtoHAsync_v2, (void* dst, Address src, size_t bytes, StreamHandle stream))                    \
  F(int, cuMemcpyDtoDAsync_v2, (Address dst, Address src, size_t bytes, StreamHandle stream))                  \
  F(int, cuStreamCreate, (StreamHandle * stream, unsigned flags))                                              \
  F(int, cuStreamDestroy_v2, (StreamHandle stream))                                                            \
  F(int, cuStreamSynchronize, (StreamHandle stream))                                                           \
  F(int, cuStreamWaitEvent, (StreamHandle stream, EventHandle event, unsigned flags))                          \
  F(int, cuStreamBeginCapture_v2, (StreamHandle stream, int mode))                                             \
  F(int, cuStreamEndCapture, (StreamHandle stream, GraphHandle * graph))                                       \
  F(int, cuEventCreate, (EventHandle * event, unsigned flags))                                                 \
  F(int, cuEventRecord, (EventHandle event, StreamHandle stream))                                              \
  F(int, cuEventSynchronize, (EventHandle event))                                                              \
  F(int, cuEventQuery, (EventHandle event))                                                                    \
  F(int, cuEventElapsedTime, (float* milliseconds, EventHandle begin, EventHandle end))                        \
  F(int, cuEventDestroy_v2, (EventHandle event))                                                               \
  F(int, cuModuleLoadData, (Module * module, const void* image))                                               \
  F(int, cuModuleUnload, (Module module))                                                                      \
  F(int, cuModuleGetFunction, (Function * function, Module module, const char* name))                          \
  F(int, cuLaunchKernel,                                                                                       \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared_bytes, StreamHandle stream, void** params, void** extra))               \
  F(int, cuGraphInstantiateWithFlags, (GraphExec * exec, GraphHandle graph, unsigned long long flags))         \
  F(int, cuGraphLaunch, (GraphExec exec, StreamHandle stream))                                                 \
  F(int, cuGraphExecDestroy, (GraphExec exec))                                                                 \
  F(int, cuGraphDestroy, (GraphHandle graph))

// NVRTC 12 or 13.
#define LATHE_CUDA_NVRTC(F)                                                                             \
  F(int, nvrtcVersion, (int* major, int* minor))                                                        \
  F(const char*, nvrtcGetErrorString, (int error))                                                      \
  F(int, nvrtcCreateProgram,                                                                            \
    (RtcProgram * program, const char* source, const char* name, int headers, const char* const* texts, \
     const char* const* names))                                                                         \
  F(int, nvrtcDestroyProgram, (RtcProgram * program))                                                   \
  F(int, nvrtcCompileProgram, (RtcProgram program, int options, const char* const* option))             \
  F(int, nvrtcGetCUBINSize, (RtcProgram program, size_t * bytes))                                       \
  F(int, nvrtcGetCUBIN, (RtcProgram program, char* image))                                              \
  F(int, nvrtcGetProgramLogSize, (RtcProgram program, size_t * bytes))                                  \
  F(int, nvrtcGetProgramLog, (RtcProgram program, char* log))

// cuBLASLt 12 or 13.
#define LATHE_CUDA_CUBLASLT(F)                                                                                    \
  F(size_t, cublasLtGetVersion, ())                                                                               \
  F(const char*, cublasLtGetStatusString, (int status))                                                           \
  F(int, cublasLtCreate, (LtHandle * handle))                                                                     \
  F(int, cublasLtDestroy, (LtHandle handle))                                                                      \
  F(int, cublasLtMatmulDescCreate, (LtMatmulDesc * desc, int compute_type, int scale_type))                       \
  F(int, cublasLtMatmulDescDestroy, (LtMatmulDesc desc))                                                          \
  F(int, cublasLtMatmulDescSetAttribute, (LtMatmulDesc desc, int attribute, const void* value, size_t bytes))     \
  F(int, cublasLtMatrixLayoutCreate, (LtLayout * layout, int type, uint64_t rows, uint64_t cols, int64_t ld))     \
  F(int, cublasLtMatrixLayoutDestroy, (LtLayout layout))                                                          \
  F(int, cublasLtMatrixLayoutSetAttribute, (LtLayout layout, int attribute, const void* value, size_t bytes))     \
  F(int, cublasLtMatmulPreferenceCreate, (LtPreference * preference))                                             \
  F(int, cublasLtMatmulPreferenceDestroy, (LtPreference preference))                                              \
  F(int, cublasLtMatmulPreferenceSetAttribute,                                                                    \
    (LtPreference preference, int attribute, const void* value, size_t bytes))                                    \
  F(int, cublasLtMatmulAlgoGetHeuristic,                                                                          \
    (LtHandle handle, LtMatmulDesc desc, LtLayout a, LtLayout b, LtLayout c, LtLayout d, LtPreference preference, \
     int wanted, LtHeuristicResult* results, int* found))                                                         \
  F(int, cublasLtMatmul,                                                                                          \
    (LtHandle handle, LtMatmulDesc desc, const void* alpha, const void* a, LtLayout a_layout, const void* b,      \
     LtLayout b_layout, const void* beta, const void* c, LtLayout c_layout, void* d, LtLayout d_layout,           \
     const LtAlgo* algo, void* workspace, size_t workspace_bytes, StreamHandle stream))

// cuDNN 9, graph API.
#define LATHE_CUDA_CUDNN(F)                                                                                           \
  F(size_t, cudnnGetVersion, ())                                                                                      \
  F(const char*, cudnnGetErrorString, (int status))                                                                   \
  F(void, cudnnGetLastErrorString, (char* message, size_t bytes))                                                     \
  F(int, cudnnCreate, (DnnHandle * handle))                                                                           \
  F(int, cudnnDestroy, (DnnHandle handle))                                                                            \
  F(int, cudnnSetStream, (DnnHandle handle, StreamHandle stream))                                                     \
  F(int, cudnnBackendCreateDescriptor, (int type, DnnDescriptor* descriptor))                                         \
  F(int, cudnnBackendDestroyDescriptor, (DnnDescriptor descriptor))                                                   \
  F(int, cudnnBackendSetAttribute, (DnnDescriptor descriptor, int name, int type, int64_t count, const void* values)) \
  F(int, cudnnBackendGetAttribute,                                                                                    \
    (DnnDescriptor descriptor, int name, int type, int64_t wanted, int64_t* count, void* values))                     \
  F(int, cudnnBackendFinalize, (DnnDescriptor descriptor))                                                            \
  F(int, cudnnBackendExecute, (DnnHandle handle, DnnDescriptor plan, DnnDescriptor pack))

// NVTX 3, optional: named ranges for profilers.
#define LATHE_CUDA_NVTX(F)                   \
  F(int, nvtxRangePushA, (const char* name)) \
  F(int, nvtxRangePop, ())
