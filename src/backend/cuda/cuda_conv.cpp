#include "backend/cuda/cuda_conv.h"

#include <algorithm>
#include <array>

#include "backend/cuda/cuda_dnn.h"
#include "backend/cuda/cuda_fallback.h"
#include "backend/cuda/cuda_site.h"
#include "backend/kernels/loop_calls.h"
#include "base/checked.h"
#include "ops/conv2d.h"

namespace lathe {
namespace {

enum class Which { forward, data, weights };

struct ConvOperands {
  cuda::Address x = 0, w = 0, y = 0, workspace = 0;
  int64_t workspace_bytes = 0;
};

class CudnnConv {
 public:
  // Null, with what it lacks, when cuDNN has no engine within the workspace.
  static std::unique_ptr<CudnnConv> make_if_offered(CudaDevice& device, Which which, DType dtype, const ConvGeometry& g,
                                                    const ConvOperands& at, bool strict, std::string* lacks) {
    std::unique_ptr<CudnnConv> made(new CudnnConv(device, which, dtype, g, at));
    int64_t least = -1;
    if (made->graph_.choose(strict, at.workspace, at.workspace_bytes, &least)) return made;
    *lacks = lacks_engine(at.workspace_bytes, least);
    return nullptr;
  }
  void run() const { graph_.run(); }

 private:
  CudnnConv(CudaDevice& device, Which which, DType dtype, const ConvGeometry& g, const ConvOperands& at)
      : graph_(device) {
    const int type = cudnn_data_type(dtype);
    const DnnDescriptor& x = tensor(type, {g.batch, g.in_c, g.in_h, g.in_w}, at.x);
    const DnnDescriptor& w = tensor(type, {g.out_c, g.group_in, g.kernel_h, g.kernel_w}, at.w);
    const DnnDescriptor& y = tensor(type, {g.batch, g.out_c, g.out_h, g.out_w}, at.y);
    DnnDescriptor& conv = graph_.part(cuda::kConvolutionDescriptor);
    const std::array<int64_t, 2> pads{g.pad_top, g.pad_left};
    conv.set(cuda::kConvSpatialDims, cuda::kTypeInt64, int64_t{2})
        .set(cuda::kConvCompType, cuda::kTypeDataType, int{dtype == DType::f64 ? cuda::kDnnDouble : cuda::kDnnFloat})
        .set(cuda::kConvMode, cuda::kTypeConvolutionMode, int{cuda::kCrossCorrelation})
        .set(cuda::kConvDilations, std::array<int64_t, 2>{g.dilation_h, g.dilation_w})
        .set(cuda::kConvStrides, std::array<int64_t, 2>{g.stride_h, g.stride_w})
        .set(cuda::kConvPrePaddings, pads)
        .set(cuda::kConvPostPaddings, pads)
        .finish();
    // The attributes of the three operations: kind, alpha, beta, convolution, w, x, y.
    static constexpr int kNames[3][7] = {
        {cuda::kConvForwardDescriptor, cuda::kForwardAlpha, cuda::kForwardBeta, cuda::kForwardConv, cuda::kForwardW,
         cuda::kForwardX, cuda::kForwardY},
        {cuda::kConvBwdDataDescriptor, cuda::kBwdDataAlpha, cuda::kBwdDataBeta, cuda::kBwdDataConv, cuda::kBwdDataW,
         cuda::kBwdDataDx, cuda::kBwdDataDy},
        {cuda::kConvBwdFilterDescriptor, cuda::kBwdFilterAlpha, cuda::kBwdFilterBeta, cuda::kBwdFilterConv,
         cuda::kBwdFilterDw, cuda::kBwdFilterX, cuda::kBwdFilterDy}};
    const int(&names)[7] = kNames[static_cast<int>(which)];
    DnnDescriptor& op = graph_.operation(names[0]);
    if (dtype == DType::f64)
      op.set(names[1], cuda::kTypeDouble, 1.0).set(names[2], cuda::kTypeDouble, 0.0);
    else
      op.set(names[1], cuda::kTypeFloat, 1.0f).set(names[2], cuda::kTypeFloat, 0.0f);
    op.set(names[3], conv).set(names[4], w).set(names[5], x).set(names[6], y).finish();
  }

  // Channels-last memory; cuDNN counts sizes as N C H W.
  const DnnDescriptor& tensor(int type, const DnnGraph::Dims& dims, cuda::Address at) {
    const auto [n, c, h, w] = dims;
    return graph_.tensor(type, dims, {h * w * c, 1, w * c, c}, at);
  }

  DnnGraph graph_;
};

// --- candidates
// -------------------------------------------------------------------------------------------------------

Which which_of(const Node& n) {
  return n.is("conv2d") ? Which::forward : n.is("conv2d_dx") ? Which::data : Which::weights;
}

ConvGeometry geometry_of(const Node& n, const Types& in) {
  const auto& p = n.get<Conv2dParams>();
  switch (which_of(n)) {
    case Which::data: return conv_geometry_dx(in[0].shape, in[1].shape, p);
    case Which::weights: return conv_geometry_dw(in[0].shape, in[1].shape, p);
    case Which::forward: break;
  }
  return conv_geometry(in[0].shape, in[1].shape, p);
}

// Whether the axis has as many windows as with the same padding behind as in front: padding behind has no effect but
// on their number.
bool is_symmetric(const WindowAxis& a) {
  return window_count("cudnn", a.in, a.kernel, a.stride, a.pad, a.pad, a.dilation) == a.out;
}

std::string check_conv(const Target& target, DType dtype, const ConvGeometry& g) {
  if (std::string reason = library_reason(target, "cudnn"); !reason.empty()) return reason;
  if (cudnn_data_type(dtype) < 0) return fmt::format("no convolution of {}", to_string(dtype));
  if (std::string reason = tensor_core_reason(target, dtype); !reason.empty()) return reason;
  if (g.x().numel() == 0 || g.y().numel() == 0) return "an empty convolution";
  if (!is_symmetric(g.rows()) || !is_symmetric(g.columns())) return "cuDNN pads alike on both sides";
  return "";
}

std::string accepts_conv(const Site& s) { return check_conv(s.target, s.in[0].dtype, geometry_of(s.node, s.in)); }

// Enough for what runs where cuDNN has no engine, too.
int64_t conv_workspace(const Site& s) {
  const ConvGeometry g = geometry_of(s.node, s.in);
  const int64_t bytes = 2 * size_of(s.in[0].dtype) * (g.x().numel() + g.w().numel() + g.y().numel());
  return std::max(std::min(s.target.library_workspace, round_up(bytes, 256)), round_up(fallback_workspace(s), 256));
}

class ConvKernel final : public Kernel {
 public:
  ConvKernel(CudaDevice& device, std::string name, std::unique_ptr<CudnnConv> conv)
      : device_(device), name_(std::move(name)), conv_(std::move(conv)) {}
  void run(Stream&) override {
    device_.enter();
    const CudaRange range(device_.api(), name_.c_str());
    conv_->run();
  }

 private:
  CudaDevice& device_;
  const std::string name_;
  std::unique_ptr<CudnnConv> conv_;
};

std::unique_ptr<Kernel> bind_conv(Device& d, const Site& s, const KernelArgs& args) {
  CudaDevice& device = as_cuda(d);
  device.enter();
  const Which which = which_of(s.node);
  ConvOperands at;
  const cuda::Address first = device.address(args.in[0]), second = device.address(args.in[1]),
                      out = device.address(args.out[0]);
  switch (which) {
    case Which::forward: at.x = first, at.w = second, at.y = out; break;
    case Which::data: at.y = first, at.w = second, at.x = out; break;
    case Which::weights: at.x = first, at.y = second, at.w = out; break;
  }
  at.workspace = device.address(args.workspace);
  at.workspace_bytes = args.workspace.bytes;
  std::string lacks;
  const DType t = s.in[0].dtype;
  auto conv = CudnnConv::make_if_offered(device, which, t, geometry_of(s.node, s.in), at,
                                         t == DType::f32 && !tf32_allowed(s.target), &lacks);
  if (!conv) return bind_fallback(device, s, args, "cuDNN", lacks);
  return std::make_unique<ConvKernel>(device, range_name(s.node), std::move(conv));
}

std::string accepts_conv_chain(const Site& s) {
  std::string reason;
  const auto c = head_chain(s.node, "conv2d", false, &reason);
  return c ? accepts_conv(c->head_site(s)) : reason;
}

int64_t conv_chain_workspace(const Site& s) {
  std::string reason;
  const HeadChain c = *head_chain(s.node, "conv2d", false, &reason);
  return conv_workspace(c.head_site(s)) + (c.loop ? loop_workspace(make_nest(*c.loop)) : 0);
}

std::unique_ptr<Kernel> bind_conv_chain(Device& d, const Site& s, const KernelArgs& args) {
  CudaDevice& device = as_cuda(d);
  std::string reason;
  const HeadChain c = *head_chain(s.node, "conv2d", false, &reason);
  const Site head = c.head_site(s);
  const int64_t head_bytes = conv_workspace(head);
  std::unique_ptr<Kernel> conv = bind_conv(d, head, head_args(c, args, head_bytes));
  if (!c.loop) return conv;
  auto rest = device.bind(range_name(s.node), loop_calls(make_nest(*c.loop), LaunchStyle::wide),
                          loop_args(c, args, head_bytes));
  return in_order(std::move(conv), std::move(rest));
}

}  // namespace

std::vector<KernelTable::Row> cuda_conv_rows() {
  std::vector<KernelTable::Row> rows;
  for (const char* op : {"conv2d", "conv2d_dx", "conv2d_dw"})
    rows.push_back({op, {"cudnn", accepts_conv, conv_workspace, bind_conv, kFallbackName}});
  rows.push_back({"fused", {"cudnn_chain", accepts_conv_chain, conv_chain_workspace, bind_conv_chain, kFallbackName}});
  return rows;
}

}  // namespace lathe
