#include "backend/cuda/cuda_matmul.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/cuda_fallback.h"
#include "backend/kernels/loop_calls.h"
#include "base/checked.h"
#include "ops/matmul.h"

namespace lathe {
namespace {

using Activation = CudaMatmulSpec::Activation;

using BiasGradient = CudaMatmulSpec::BiasGradient;

int epilogue_of(const CudaMatmulSpec& s) {
  if (s.gelu_gradient) return s.bias_gradient == BiasGradient::of_d ? cuda::kEpilogueDgeluBgrad : cuda::kEpilogueDgelu;
  // Its A is our b.
  if (s.bias_gradient != BiasGradient::none)
    return s.bias_gradient == BiasGradient::of_b ? cuda::kEpilogueBgradA : cuda::kEpilogueBgradB;
  const int act = s.activation == Activation::relu   ? cuda::kEpilogueRelu
                  : s.keep_input                     ? cuda::kEpilogueGeluAux
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

CudaMatmul::CudaMatmul(CudaDevice& device, const CudaMatmulSpec& spec, const Operands& at, Unchosen)
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
}

CudaMatmul::CudaMatmul(CudaDevice& device, const CudaMatmulSpec& s, const Operands& at)
    : CudaMatmul(device, s, at, Unchosen{}) {
  int status = 0;
  if (choose(&status)) return;
  const cuda::Api& api = device.api();
  throw DeviceError(fmt::format(
      "cuda: cuBLASLt {} has no algorithm for a product of {} x {} x {} ({} of them, type {}, epilogue {}, {} bytes of "
      "workspace): {}",
      api.cublasLtGetVersion(), s.m, s.n, s.k, s.batch, s.type, epilogue_of(s), at_.workspace_bytes,
      api.cublasLtGetStatusString(status)));
}

std::unique_ptr<CudaMatmul> CudaMatmul::make_if_offered(CudaDevice& device, const CudaMatmulSpec& spec,
                                                        const Operands& at) {
  std::unique_ptr<CudaMatmul> made(new CudaMatmul(device, spec, at, Unchosen{}));
  int status = 0;
  if (made->choose(&status)) return made;
  if (status != cuda::kLtNotSupported) cuda::check_cublaslt(device.api(), status, "cublasLtMatmulAlgoGetHeuristic");
  return nullptr;
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
  if (s.bias || s.bias_gradient != BiasGradient::none) set(cuda::kDescBiasPointer, at_.bias);
  if (s.keep_input || s.gelu_gradient) {
    set(cuda::kDescAuxPointer, at_.aux);
    set(cuda::kDescAuxLd, s.n);
    set(cuda::kDescAuxBatchStride, s.m * s.n);
  }

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

bool CudaMatmul::choose(int* status) {
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
  prefer(cuda::kPrefReductionMask, static_cast<uint32_t>(cuda::kReductionComputeType));
  prefer(cuda::kPrefAlignA, alignment_of(at_.b));
  prefer(cuda::kPrefAlignB, alignment_of(at_.a));
  prefer(cuda::kPrefAlignC, alignment_of(at_.c));
  prefer(cuda::kPrefAlignD, alignment_of(at_.d));
  cuda::LtHeuristicResult result{};
  int found = 0;
  *status = api.cublasLtMatmulAlgoGetHeuristic(device_.cublaslt(), desc_.matmul, desc_.layout[0], desc_.layout[1],
                                               desc_.layout[2], desc_.layout[2], preference.handle, 1, &result, &found);
  algo_ = result.algo;
  return *status == cuda::kLtSuccess && found > 0 && result.state == cuda::kLtSuccess;
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

CudaMatmulSpec spec_of(const Site& site, DType t, const Types& in, const MatmulParams& p) {
  const MatmulDims d = matmul_dims(in[0].shape, in[1].shape, p);
  CudaMatmulSpec s;
  s.batch = d.batch;
  s.m = d.m;
  s.n = d.n;
  s.k = d.k;
  s.trans_a = p.trans_a;
  s.trans_b = p.trans_b;
  s.type = cuda_data_type(t);
  s.tf32 = t == DType::f32 && tf32_allowed(site.target);
  return s;
}

std::string check_matmul(const Site& site, const CudaMatmulSpec& s) {
  if (std::string reason = library_reason(site.target, "cublaslt"); !reason.empty()) return reason;
  if (s.type < 0) return "cuBLASLt has no product of this type";
  constexpr int64_t kMost = 2147483647;
  if (s.batch * s.m * s.n == 0 || s.k == 0) return "an empty product";
  if (s.batch > kMost || s.m > kMost || s.n > kMost || s.k > kMost) return "a size beyond 2^31";
  return "";
}

std::string accepts_matmul(const Site& s) {
  return check_matmul(s, spec_of(s, s.out[0].dtype, s.in, s.node.get<MatmulParams>()));
}

// Splitting the sum over k needs room for partial results; more than a few copies of the result never pays.
int64_t workspace_for(const Target& target, const CudaMatmulSpec& s) {
  return std::min(target.library_workspace, round_up(8 * s.batch * s.m * s.n * type_bytes(s.type), 256));
}

// Enough for what runs where cuBLASLt has no algorithm, too.
int64_t matmul_workspace(const Site& s) {
  return std::max(workspace_for(s.target, spec_of(s, s.out[0].dtype, s.in, s.node.get<MatmulParams>())),
                  round_up(fallback_workspace(s), 256));
}

class MatmulKernel final : public Kernel {
 public:
  MatmulKernel(CudaDevice& device, std::string name, std::unique_ptr<CudaMatmul> matmul)
      : device_(device), name_(std::move(name)), matmul_(std::move(matmul)) {}
  void run(Stream& stream) override {
    device_.enter();
    const CudaRange range(device_.api(), name_.c_str());
    matmul_->run(as_cuda(stream).handle());
  }

 private:
  CudaDevice& device_;
  const std::string name_;
  std::unique_ptr<CudaMatmul> matmul_;
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

std::unique_ptr<Kernel> bind_matmul(Device& d, const Site& s, const KernelArgs& args) {
  CudaDevice& device = as_cuda(d);
  const CudaMatmulSpec spec = spec_of(s, s.out[0].dtype, s.in, s.node.get<MatmulParams>());
  auto matmul = CudaMatmul::make_if_offered(
      device, spec, operands(device, args.in[0], args.in[1], args.out[0], args.workspace, args.workspace.bytes));
  if (!matmul)
    return bind_fallback(device, s, args, "cuBLASLt",
                         fmt::format("no algorithm within {} bytes of workspace", args.workspace.bytes));
  return std::make_unique<MatmulKernel>(device, range_name(s.node), std::move(matmul));
}

// --- a product and the chain behind it
// --------------------------------------------------------------------------------

struct ChainPlan {
  HeadChain chain;
  CudaMatmulSpec spec;
};

// `absorb`: the library does what it can of the chain; otherwise all of it is a loop over the product.
std::optional<ChainPlan> plan_chain(const Site& site, bool absorb, std::string* reason) {
  auto chain = head_chain(site.node, "matmul", absorb, reason);
  if (!chain) return std::nullopt;
  ChainPlan p{std::move(*chain), {}};
  CudaMatmulSpec& s = p.spec;
  s = spec_of(site, p.chain.head_out.dtype, p.chain.head_in, p.chain.head.get<MatmulParams>());
  s.bias = p.chain.bias >= 0;
  s.add_c = p.chain.residual >= 0;
  s.activation = p.chain.activation;
  s.keep_input = p.chain.gelu_input >= 0;
  s.gelu_gradient = p.chain.slope_input >= 0;
  if (p.chain.bias_gradient >= 0)
    s.bias_gradient = p.chain.summed < 0    ? BiasGradient::of_d
                      : p.chain.summed == 0 ? BiasGradient::of_a
                                            : BiasGradient::of_b;
  *reason = check_matmul(site, s);
  if (reason->empty() && s.type == cuda::kR64F && epilogue_of(s) != cuda::kEpilogueDefault)
    *reason = "cuBLASLt has no epilogues in f64";
  if (reason->empty() && (s.keep_input || s.gelu_gradient) && s.n % kGeluColumns != 0)
    *reason = fmt::format("cuBLASLt keeps the input of gelu for multiples of {} columns, not {}", kGeluColumns, s.n);
  if (!reason->empty()) return std::nullopt;
  return p;
}

std::string accepts_matmul_chain(const Site& s) {
  std::string reason;
  return plan_chain(s, true, &reason) ? "" : reason;
}

// Room for the loop of the chain as planned, and of the one that runs where the library has no such epilogue.
int64_t matmul_chain_workspace(const Site& s) {
  std::string reason;
  int64_t loop = 0;
  for (const bool absorb : {true, false})
    if (const auto p = plan_chain(s, absorb, &reason); p && p->chain.loop)
      loop = std::max(loop, loop_workspace(make_nest(*p->chain.loop)));
  return matmul_workspace(plan_chain(s, true, &reason)->chain.head_site(s)) + loop;
}

std::unique_ptr<Kernel> bind_matmul_chain(Device& d, const Site& s, const KernelArgs& args) {
  CudaDevice& device = as_cuda(d);
  std::string reason;
  for (const bool absorb : {true, false}) {
    const auto p = plan_chain(s, absorb, &reason);
    if (!p) break;
    const HeadChain& c = p->chain;
    const int64_t head_bytes = matmul_workspace(c.head_site(s));
    std::unique_ptr<Kernel> head;
    if (epilogue_of(p->spec) == cuda::kEpilogueDefault && !p->spec.add_c) {
      head = bind_matmul(d, c.head_site(s), head_args(c, args, head_bytes));
    } else {
      const auto in = [&](int i) { return i < 0 ? 0 : device.address(args.in[static_cast<size_t>(i)]); };
      const auto out = [&](int i) { return device.address(args.out[static_cast<size_t>(i)]); };
      CudaMatmul::Operands at =
          operands(device, args.in[static_cast<size_t>(c.inputs[0])], args.in[static_cast<size_t>(c.inputs[1])],
                   args.out[static_cast<size_t>(c.output)], args.workspace, head_bytes);
      at.c = in(c.residual);
      at.bias = c.bias_gradient >= 0 ? out(c.bias_gradient) : in(c.bias);
      at.aux = c.gelu_input >= 0 ? out(c.gelu_input) : in(c.slope_input);
      // Whether the library has an algorithm is known on the card only; every epilogue can be done without it.
      auto matmul = CudaMatmul::make_if_offered(device, p->spec, at);
      if (!matmul) continue;
      head = std::make_unique<MatmulKernel>(device, range_name(s.node), std::move(matmul));
    }
    if (!c.loop) return head;
    return in_order(std::move(head), device.bind(range_name(s.node), loop_calls(make_nest(*c.loop), LaunchStyle::wide),
                                                 loop_args(c, args, head_bytes)));
  }
  throw DeviceError(fmt::format("cuda: cuBLASLt {} has no algorithm for the epilogue of {}{}{}",
                                device.api().cublasLtGetVersion(), s.node.origin, reason.empty() ? "" : ": ", reason));
}

}  // namespace

std::vector<KernelTable::Row> cuda_matmul_rows() {
  return {
      {"matmul", {"cublaslt", accepts_matmul, matmul_workspace, bind_matmul, kFallbackName}},
      {"fused", {"cublaslt_chain", accepts_matmul_chain, matmul_chain_workspace, bind_matmul_chain, kFallbackName}}};
}

}  // namespace lathe
