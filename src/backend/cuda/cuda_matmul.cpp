#include "backend/cuda/cuda_matmul.h"

#include <algorithm>
#include <cstring>

#include "backend/kernels/loop_calls.h"
#include "base/checked.h"
#include "ops/matmul.h"

namespace lathe {
namespace {

using Activation = CudaMatmulSpec::Activation;

int epilogue_of(const CudaMatmulSpec& s) {
  const int act = s.activation == Activation::relu   ? cuda::kEpilogueRelu
                  : s.activation == Activation::gelu ? cuda::kEpilogueGelu
                                                     : 0;
  const int all = act | (s.bias ? cuda::kEpilogueBias : 0);
  return all == 0 ? cuda::kEpilogueDefault : all;
}

// The largest power of two, up to 256, that divides the address.
uint32_t alignment_of(cuda::Address a) {
  uint32_t align = 256;
  while (a % align != 0) align /= 2;
  return align;
}

int64_t type_bytes(int type) { return type == cuda::kR64F ? 8 : type == cuda::kR32F ? 4 : 2; }

}  // namespace

CudaMatmul::CudaMatmul(CudaDevice& device, const CudaMatmulSpec& spec, const Operands& at)
    : device_(device), at_(at), desc_(device.api()) {
  device.enter();
  if (!spec.add_c) at_.c = at_.d;
  if (spec.type == cuda::kR64F) {
    alpha_[0] = 1;
    beta_[0] = spec.add_c ? 1 : 0;
  } else {
    const float one = 1, zero = 0;
    std::memcpy(alpha_, &one, sizeof one);
    std::memcpy(beta_, spec.add_c ? &one : &zero, sizeof one);
  }
  make_descriptors(spec);
  choose(spec);
}

CudaMatmul::Descriptors::~Descriptors() {
  for (const cuda::LtLayout l : layout)
    if (l) api.cublasLtMatrixLayoutDestroy(l);
  if (matmul) api.cublasLtMatmulDescDestroy(matmul);
}

void CudaMatmul::make_descriptors(const CudaMatmulSpec& s) {
  const cuda::Api& api = device_.api();
  const bool wide = s.type == cuda::kR64F;
  const int compute = wide ? cuda::kCompute64F : s.tf32 ? cuda::kCompute32FFastTf32 : cuda::kCompute32F;
  LATHE_CUBLASLT(api, cublasLtMatmulDescCreate(&desc_.matmul, compute, wide ? cuda::kR64F : cuda::kR32F));
  const auto set = [&](int attribute, const auto& value) {
    LATHE_CUBLASLT(api, cublasLtMatmulDescSetAttribute(desc_.matmul, attribute, &value, sizeof value));
  };
  const int op_a = s.trans_b ? cuda::kOpT : cuda::kOpN, op_b = s.trans_a ? cuda::kOpT : cuda::kOpN;
  set(cuda::kDescTransA, op_a);
  set(cuda::kDescTransB, op_b);
  set(cuda::kDescEpilogue, epilogue_of(s));
  if (s.bias) set(cuda::kDescBiasPointer, at_.bias);

  // As stored: our rows are its columns.
  const int64_t b_rows = s.trans_b ? s.n : s.k, b_cols = s.trans_b ? s.k : s.n;
  const int64_t a_rows = s.trans_a ? s.k : s.m, a_cols = s.trans_a ? s.m : s.k;
  const struct { int64_t rows, cols; } stored[3] = {{b_rows, b_cols}, {a_rows, a_cols}, {s.m, s.n}};
  for (size_t i = 0; i < 3; ++i) {
    const auto& [rows, cols] = stored[i];
    LATHE_CUBLASLT(api, cublasLtMatrixLayoutCreate(&desc_.layout[i], s.type, static_cast<uint64_t>(cols),
                                                   static_cast<uint64_t>(rows), cols));
    const auto count = static_cast<int32_t>(s.batch);
    const int64_t stride = rows * cols;
    LATHE_CUBLASLT(api,
                   cublasLtMatrixLayoutSetAttribute(desc_.layout[i], cuda::kLayoutBatchCount, &count, sizeof count));
    LATHE_CUBLASLT(api,
                   cublasLtMatrixLayoutSetAttribute(desc_.layout[i], cuda::kLayoutBatchStride, &stride, sizeof stride));
  }
}

void CudaMatmul::choose(const CudaMatmulSpec& s) {
  const cuda::Api& api = device_.api();
  struct Preference {
    const cuda::Api& api;
    cuda::LtPreference handle = nullptr;
    ~Preference() {
      if (handle) api.cublasLtMatmulPreferenceDestroy(handle);
    }
  } preference{api};
  LATHE_CUBLASLT(api, cublasLtMatmulPreferenceCreate(&preference.handle));
  const auto prefer = [&](int attribute, const auto& value) {
    LATHE_CUBLASLT(api, cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof value));
  };
  prefer(cuda::kPrefMaxWorkspace, static_cast<uint64_t>(at_.workspace_bytes));
  prefer(cuda::kPrefAlignA, alignment_of(at_.b));
  prefer(cuda::kPrefAlignB, alignment_of(at_.a));
  prefer(cuda::kPrefAlignC, alignment_of(at_.c));
  prefer(cuda::kPrefAlignD, alignment_of(at_.d));
  cuda::LtHeuristicResult result{};
  int found = 0;
  const int status =
      api.cublasLtMatmulAlgoGetHeuristic(device_.cublaslt(), desc_.matmul, desc_.layout[0], desc_.layout[1],
                                         desc_.layout[2], desc_.layout[2], preference.handle, 1, &result, &found);
  if (status != cuda::kLtSuccess || found == 0)
    throw DeviceError(
        fmt::format("cuda: cuBLASLt {} has no algorithm for a product of {} x {} x {} ({} of them, type {}, epilogue "
                    "{}, {} bytes of "
                    "workspace): {}",
                    api.cublasLtGetVersion(), s.m, s.n, s.k, s.batch, s.type, epilogue_of(s), at_.workspace_bytes,
                    api.cublasLtGetStatusString(status)));
  algo_ = result.algo;
}

void CudaMatmul::run(cuda::StreamHandle stream) const {
  const auto pointer = [](cuda::Address a) { return reinterpret_cast<void*>(a); };
  LATHE_CUBLASLT(
      device_.api(),
      cublasLtMatmul(device_.cublaslt(), desc_.matmul, alpha_, pointer(at_.b), desc_.layout[0], pointer(at_.a),
                     desc_.layout[1], beta_, pointer(at_.c), desc_.layout[2], pointer(at_.d), desc_.layout[2], &algo_,
                     pointer(at_.workspace), static_cast<size_t>(at_.workspace_bytes), stream));
}

// --- candidates
// -------------------------------------------------------------------------------------------------------

namespace {

CudaMatmulSpec spec_of(DType t, const Types& in, const MatmulParams& p) {
  const MatmulDims d = matmul_dims(in[0].shape, in[1].shape, p);
  CudaMatmulSpec s;
  s.batch = d.batch;
  s.m = d.m;
  s.n = d.n;
  s.k = d.k;
  s.trans_a = p.trans_a;
  s.trans_b = p.trans_b;
  s.type = cuda_data_type(t);
  s.tf32 = t == DType::f32 && tf32_allowed();
  return s;
}

std::string check(const Site& site, const CudaMatmulSpec& s) {
  if (std::string reason = library_reason(site.target, "cublaslt"); !reason.empty()) return reason;
  if (s.type < 0) return "cuBLASLt has no product of this type";
  constexpr int64_t kMost = 2147483647;
  if (s.batch * s.m * s.n == 0 || s.k == 0) return "an empty product";
  if (s.batch > kMost || s.m > kMost || s.n > kMost || s.k > kMost) return "a size beyond 2^31";
  return "";
}

std::string accepts(const Site& s) { return check(s, spec_of(s.out[0].dtype, s.in, s.node.get<MatmulParams>())); }

// Splitting the sum over k needs room for partial results; more than a few copies of the result never pays.
int64_t workspace_for(const Target& target, const CudaMatmulSpec& s) {
  return std::min(target.library_workspace, round_up(8 * s.batch * s.m * s.n * type_bytes(s.type), 256));
}

int64_t workspace(const Site& s) {
  return workspace_for(s.target, spec_of(s.out[0].dtype, s.in, s.node.get<MatmulParams>()));
}

class MatmulKernel final : public Kernel {
 public:
  MatmulKernel(CudaDevice& device, const CudaMatmulSpec& spec, const CudaMatmul::Operands& at,
               std::unique_ptr<Kernel> rest)
      : device_(device), matmul_(device, spec, at), rest_(std::move(rest)) {}
  void run(Stream& stream) override {
    device_.enter();
    const CudaRange range(device_.api(), "matmul");
    matmul_.run(as_cuda(stream).handle());
    if (rest_) rest_->run(stream);
  }

 private:
  CudaDevice& device_;
  CudaMatmul matmul_;
  std::unique_ptr<Kernel> rest_;  // of a chain, over the product
};

CudaMatmul::Operands operands(const CudaDevice& d, const Buffer& a, const Buffer& b, const Buffer& out,
                              const Buffer& workspace, int64_t workspace_bytes) {
  CudaMatmul::Operands at;
  at.a = d.address(a);
  at.b = d.address(b);
  at.d = d.address(out);
  if (workspace_bytes > 0) at.workspace = d.address(workspace);
  at.workspace_bytes = workspace_bytes;
  return at;
}

std::unique_ptr<Kernel> bind(Device& d, const Site& s, const KernelArgs& args) {
  CudaDevice& device = as_cuda(d);
  return std::make_unique<MatmulKernel>(
      device, spec_of(s.out[0].dtype, s.in, s.node.get<MatmulParams>()),
      operands(device, args.in[0], args.in[1], args.out[0], args.workspace, args.workspace.bytes), nullptr);
}

// --- a product and the chain behind it
// --------------------------------------------------------------------------------

struct ChainPlan {
  HeadChain chain;
  CudaMatmulSpec spec;
};

std::optional<ChainPlan> plan_chain(const Site& site, std::string* reason) {
  auto chain = head_chain(site.node, "matmul", true, reason);
  if (!chain) return std::nullopt;
  ChainPlan p{std::move(*chain), {}};
  p.spec = spec_of(p.chain.head_out.dtype, p.chain.head_in, p.chain.head.get<MatmulParams>());
  p.spec.bias = p.chain.bias >= 0;
  p.spec.add_c = p.chain.residual >= 0;
  p.spec.activation = p.chain.activation;
  *reason = check(site, p.spec);
  if (reason->empty() && p.spec.type == cuda::kR64F && (p.spec.bias || p.spec.activation != Activation::none))
    *reason = "cuBLASLt has no epilogues in f64";
  if (!reason->empty()) return std::nullopt;
  return p;
}

std::string accepts_chain(const Site& s) {
  std::string reason;
  return plan_chain(s, &reason) ? "" : reason;
}

int64_t workspace_chain(const Site& s) {
  std::string reason;
  const auto p = plan_chain(s, &reason);
  return workspace_for(s.target, p->spec) + (p->chain.loop ? loop_workspace(make_nest(*p->chain.loop)) : 0);
}

std::unique_ptr<Kernel> bind_chain(Device& d, const Site& s, const KernelArgs& args) {
  CudaDevice& device = as_cuda(d);
  std::string reason;
  const ChainPlan p = *plan_chain(s, &reason);
  const auto in = [&](int i) -> const Buffer& { return args.in[static_cast<size_t>(i)]; };
  const Buffer& product = args.out[static_cast<size_t>(p.chain.output)];
  CudaMatmul::Operands at = operands(device, in(p.chain.inputs[0]), in(p.chain.inputs[1]), product, args.workspace,
                                     workspace_for(s.target, p.spec));
  if (p.spec.bias) at.bias = device.address(in(p.chain.bias));
  if (p.spec.add_c) at.c = device.address(in(p.chain.residual));
  std::unique_ptr<Kernel> rest;
  if (p.chain.loop) {
    KernelArgs loop = args;
    loop.in.push_back(product);
    loop.workspace.offset += at.workspace_bytes;
    loop.workspace.bytes -= at.workspace_bytes;
    rest = device.bind("fused", loop_calls(make_nest(*p.chain.loop), LaunchStyle::wide), loop);
  }
  return std::make_unique<MatmulKernel>(device, p.spec, at, std::move(rest));
}

}  // namespace

std::vector<KernelTable::Row> cuda_matmul_rows() {
  return {{"matmul", {"cublaslt", accepts, workspace, bind}},
          {"fused", {"cublaslt_chain", accepts_chain, workspace_chain, bind_chain}}};
}

}  // namespace lathe
