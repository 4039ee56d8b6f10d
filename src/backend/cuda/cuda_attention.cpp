#include "backend/cuda/cuda_attention.h"

#include <algorithm>
#include <limits>

#include "backend/cuda/cuda_dnn.h"
#include "backend/cuda/cuda_fallback.h"
#include "backend/cuda/cuda_site.h"
#include "backend/kernels/node_calls.h"
#include "base/checked.h"
#include "ops/attention.h"

namespace lathe {
namespace {

// The operations in the order and with the types that cuDNN's engines for attention recognise: scores and softmax in
// f32, the operands of products in the type of q.
class AttentionOperations {
 public:
  using Tensor = const DnnDescriptor&;
  AttentionOperations(DnnGraph& graph, const TensorType& q, const AttentionParams& p)
      : graph_(graph),
        params_(p),
        type_(cudnn_data_type(q.dtype)),
        b_(q.shape[0]),
        h_(q.shape[1]),
        t_(q.shape[2]),
        d_(q.shape[3]) {}

  // Tensors in memory. `turned`: as its transpose.
  Tensor heads(cuda::Address at, bool turned = false) {
    if (turned) return graph_.tensor(type_, {b_, h_, d_, t_}, {h_ * t_ * d_, t_ * d_, 1, d_}, at);
    return graph_.tensor(type_, {b_, h_, t_, d_}, {h_ * t_ * d_, t_ * d_, d_, 1}, at);
  }
  Tensor rows(cuda::Address at) { return graph_.tensor(cuda::kDnnFloat, {b_, h_, t_, 1}, {h_ * t_, t_, 1, 1}, at); }

  // y = softmax(scale q k^T) v, and the log of each row's sum.
  void forward(Tensor q, Tensor k_turned, Tensor v, Tensor y, Tensor lse) {
    Tensor s = scores(q, k_turned);
    Tensor top = inner_rows();
    reduce(cuda::kReduceMax, s, top);
    Tensor e = exp(pointwise(cuda::kPwSub, s, &top, inner_scores()));
    Tensor sum = inner_rows();
    reduce(cuda::kReduceAdd, e, sum);
    pointwise(cuda::kPwAdd, top, &pointwise(cuda::kPwLog, sum, nullptr, inner_rows()), lse);
    matmul(pointwise(cuda::kPwDiv, e, &sum, inner_scores(type_)), v, y);
  }

  struct Gradients {
    Tensor dq, dk, dv;
  };
  void backward(Tensor dy, Tensor q, Tensor k_turned, Tensor v_turned, Tensor y, Tensor lse, const Gradients& out) {
    Tensor one = graph_.scalar(1);
    Tensor product = pointwise(cuda::kPwMul, dy, &y, inner({b_, h_, t_, d_}));
    Tensor summed = inner_rows();
    reduce(cuda::kReduceAdd, product, summed);
    Tensor mean = pointwise(cuda::kPwMul, summed, &one, inner_rows());
    Tensor prob = exp(pointwise(cuda::kPwSub, scores(q, k_turned), &lse, inner_scores()));
    matmul(turned_scores(prob), dy, out.dv);
    Tensor dprob = inner_scores();
    matmul(dy, v_turned, dprob);
    Tensor same = pointwise(cuda::kPwMul, dprob, &one, inner_scores());
    Tensor centred = pointwise(cuda::kPwSub, same, &mean, inner_scores());
    Tensor weighted = pointwise(cuda::kPwMul, centred, &prob, inner_scores());
    Tensor ds = pointwise(cuda::kPwMul, weighted, &scale(), inner_scores());
    matmul(turned_scores(ds), q, out.dk);
    Tensor k = graph_.inner(type_, {b_, h_, t_, d_}, {h_ * t_ * d_, t_ * d_, d_, 1});
    graph_.operation(cuda::kReshapeOperation).set(cuda::kReshapeOpX, k_turned).set(cuda::kReshapeOpY, k).finish();
    matmul(ds, k, out.dq);
  }

 private:
  Tensor inner(const DnnGraph::Dims& dims, int type = cuda::kDnnFloat) {
    const auto [a, b, c, d] = dims;
    return graph_.inner(type, dims, {b * c * d, c * d, d, 1});
  }
  Tensor inner_scores(int type = cuda::kDnnFloat) { return inner({b_, h_, t_, t_}, type); }
  Tensor inner_rows() { return inner({b_, h_, t_, 1}); }
  Tensor scale() { return graph_.scalar(static_cast<float>(params_.scale)); }

  // scale q k^T; masked where a row must not see a column.
  Tensor scores(Tensor q, Tensor k_turned) {
    Tensor raw = inner_scores();
    matmul(q, k_turned, raw);
    Tensor scaled = pointwise(cuda::kPwMul, raw, &scale(), inner_scores());
    if (!params_.causal) return scaled;
    Tensor row = index(scaled, 2);
    Tensor column = index(scaled, 3);
    Tensor seen = pointwise(cuda::kPwGreaterEqual, row, &column, inner_scores(cuda::kDnnBool), cuda::kDnnBool);
    Tensor lowest = graph_.scalar(std::numeric_limits<float>::lowest());
    DnnDescriptor& mode = pointwise_mode(cuda::kPwSelect, cuda::kDnnFloat).finish();
    Tensor masked = inner_scores();
    graph_.operation(cuda::kPointwiseOperation)
        .set(cuda::kPointwiseOpMode, mode)
        .set(cuda::kPointwiseOpX, scaled)
        .set(cuda::kPointwiseOpB, lowest)
        .set(cuda::kPointwiseOpT, seen)
        .set(cuda::kPointwiseOpY, masked)
        .finish();
    return masked;
  }

  Tensor index(Tensor like, int64_t axis) {
    DnnDescriptor& mode = pointwise_mode(cuda::kPwIndex, cuda::kDnnInt32);
    mode.set(cuda::kPointwiseAxis, cuda::kTypeInt64, axis).finish();
    Tensor y = inner_scores(cuda::kDnnInt32);
    graph_.operation(cuda::kPointwiseOperation)
        .set(cuda::kPointwiseOpMode, mode)
        .set(cuda::kPointwiseOpX, like)
        .set(cuda::kPointwiseOpY, y)
        .finish();
    return y;
  }

  Tensor turned_scores(Tensor s) {
    Tensor y = graph_.inner(type_, {b_, h_, t_, t_}, {h_ * t_ * t_, t_ * t_, 1, t_});
    graph_.operation(cuda::kReshapeOperation).set(cuda::kReshapeOpX, s).set(cuda::kReshapeOpY, y).finish();
    return y;
  }

  DnnDescriptor& pointwise_mode(int mode, int precision) {
    return graph_.part(cuda::kPointwiseDescriptor)
        .set(cuda::kPointwiseMode, cuda::kTypePointwiseMode, mode)
        .set(cuda::kPointwisePrecision, cuda::kTypeDataType, precision);
  }

  Tensor pointwise(int mode, Tensor x, const DnnDescriptor* other, Tensor y, int precision = cuda::kDnnFloat) {
    DnnDescriptor& how = pointwise_mode(mode, precision).finish();
    DnnDescriptor& op = graph_.operation(cuda::kPointwiseOperation);
    op.set(cuda::kPointwiseOpMode, how).set(cuda::kPointwiseOpX, x);
    if (other) op.set(cuda::kPointwiseOpB, *other);
    op.set(cuda::kPointwiseOpY, y).finish();
    return y;
  }
  Tensor exp(Tensor x) { return pointwise(cuda::kPwExp, x, nullptr, inner_scores()); }

  void reduce(int how, Tensor x, Tensor y) {
    DnnDescriptor& reduction = graph_.part(cuda::kReductionDescriptor);
    reduction.set(cuda::kReductionOperator, cuda::kTypeReductionOperator, how)
        .set(cuda::kReductionCompType, cuda::kTypeDataType, int{cuda::kDnnFloat})
        .finish();
    graph_.operation(cuda::kReductionOperation)
        .set(cuda::kReductionOpX, x)
        .set(cuda::kReductionOpY, y)
        .set(cuda::kReductionOpDesc, reduction)
        .finish();
  }

  void matmul(Tensor a, Tensor b, Tensor c) {
    DnnDescriptor& product = graph_.part(cuda::kMatmulDescriptor);
    product.set(cuda::kMatmulCompType, cuda::kTypeDataType, int{cuda::kDnnFloat}).finish();
    graph_.operation(cuda::kMatmulOperation)
        .set(cuda::kMatmulOpA, a)
        .set(cuda::kMatmulOpB, b)
        .set(cuda::kMatmulOpC, c)
        .set(cuda::kMatmulOpDesc, product)
        .finish();
  }

  DnnGraph& graph_;
  const AttentionParams params_;
  const int type_;
  const int64_t b_, h_, t_, d_;
};

class AttentionKernel final : public Kernel {
 public:
  AttentionKernel(CudaDevice& device, std::string name, std::unique_ptr<DnnGraph> graph)
      : device_(device), name_(std::move(name)), graph_(std::move(graph)) {}
  void run(Stream&) override {
    device_.enter();
    const CudaRange range(device_.api(), name_.c_str());
    graph_->run();
  }

 private:
  CudaDevice& device_;
  const std::string name_;
  std::unique_ptr<DnnGraph> graph_;
};

bool is_forward(const Site& s) { return s.node.is("attention"); }
const TensorType& query_of(const Site& s) { return is_forward(s) ? s.in[0] : s.in[1]; }

std::string accepts_cudnn_attention(const Site& s) {
  const TensorType& q = query_of(s);
  if (std::string reason = library_reason(s.target, "cudnn"); !reason.empty()) return reason;
  if (!is_16bit(q.dtype)) return fmt::format("cuDNN's attention is for f16 and bf16, not {}", to_string(q.dtype));
  constexpr int kFused = 80;  // the first for which cuDNN has attention
  if (s.target.capability > 0 && s.target.capability < kFused)
    return fmt::format("cuDNN's attention needs compute capability 8.0, the card has {}.{}", s.target.capability / 10,
                       s.target.capability % 10);
  constexpr int64_t kWidest = 128, kMultiple = 8;
  if (q.shape[3] > kWidest || q.shape[3] % kMultiple != 0)
    return fmt::format("cuDNN's attention is for heads of up to {} in multiples of {}, not {}", kWidest, kMultiple,
                       q.shape[3]);
  const DType rows = is_forward(s) ? s.out[1].dtype : s.in[5].dtype;
  if (rows != DType::f32) return fmt::format("cuDNN keeps the sums of rows in f32, not {}", to_string(rows));
  // Whether there is an engine is known on the card only, and then something must run.
  return direct_reason(s);
}

// The library may have more here than for a product: engines of the gradient that repeat their bits keep the gradient
// of the scores, and NVIDIA's own front end allows them this much by default. At most a sixty-fourth of the card.
int64_t attention_cap(const Target& t) {
  constexpr int64_t kMost = int64_t{256} << 20, kPart = 64;
  return std::max(t.library_workspace, std::min(kMost, t.memory / kPart));
}

int64_t workspace_attention(const Site& s) {
  const TensorType& q = query_of(s);
  const int64_t heads = q.shape[0] * q.shape[1], length = round_up(q.shape[2], 64);
  const int64_t bytes = is_forward(s) ? 4 * heads * length : heads * (2 * length * length + 8 * length * q.shape[3]);
  return std::max(fallback_workspace(s), std::min(attention_cap(s.target), round_up(bytes, 256)));
}

std::unique_ptr<Kernel> bind_attention(Device& d, const Site& s, const KernelArgs& args) {
  CudaDevice& device = as_cuda(d);
  auto graph = std::make_unique<DnnGraph>(device);
  AttentionOperations ops(*graph, query_of(s), s.node.get<AttentionParams>());
  const auto in = [&](size_t i) { return device.address(args.in[i]); };
  const auto out = [&](size_t i) { return device.address(args.out[i]); };
  if (is_forward(s))
    ops.forward(ops.heads(in(0)), ops.heads(in(1), true), ops.heads(in(2)), ops.heads(out(0)), ops.rows(out(1)));
  else
    ops.backward(ops.heads(in(0)), ops.heads(in(1)), ops.heads(in(2), true), ops.heads(in(3), true), ops.heads(in(4)),
                 ops.rows(in(5)), {ops.heads(out(0)), ops.heads(out(1)), ops.heads(out(2))});
  int64_t least = -1;
  if (graph->choose(false, device.address(args.workspace), args.workspace.bytes, &least))
    return std::make_unique<AttentionKernel>(device, range_name(s.node), std::move(graph));
  return bind_fallback(device, s, args, "cuDNN", lacks_engine(args.workspace.bytes, least));
}

}  // namespace

std::vector<KernelTable::Row> cuda_attention_rows() {
  std::vector<KernelTable::Row> rows;
  for (const char* op : {"attention", "attention_grad"})
    rows.push_back(
        {op, {"cudnn_attention", accepts_cudnn_attention, workspace_attention, bind_attention, kFallbackName}});
  return rows;
}

}  // namespace lathe
