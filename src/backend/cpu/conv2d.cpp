// conv2d, its two gradients, and fused nodes of kind "conv2d", on conv_gemm.
#include "ops/conv2d.h"

#include "backend/cpu/conv_gemm.h"
#include "backend/cpu/epilogue.h"
#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"
#include "base/checked.h"

namespace lathe::cpu {
namespace {

ConvShape conv_shape(const ConvGeometry& g) {
  return {.n = g.batch, .h = g.in_h, .w = g.in_w, .c = g.in_c, .o = g.out_c, .kh = g.kernel_h, .kw = g.kernel_w,
          .stride_h = g.stride_h, .stride_w = g.stride_w, .pad_top = g.pad_top, .pad_left = g.pad_left,
          .dil_h = g.dilation_h, .dil_w = g.dilation_w, .groups = g.groups, .oh = g.out_h, .ow = g.out_w};
}

ConvShape conv_shape(ConvPass pass, const Types& in, const Conv2dParams& p) {
  switch (pass) {
    case ConvPass::dx: return conv_shape(conv_geometry_dx(in[0].shape, in[1].shape, p));
    case ConvPass::dw: return conv_shape(conv_geometry_dw(in[0].shape, in[1].shape, p));
    case ConvPass::forward: break;
  }
  return conv_shape(conv_geometry(in[0].shape, in[1].shape, p));
}

int64_t conv_bytes(ConvPass pass, DType t, const ConvShape& s, int threads) {
  return t == DType::f64 ? conv2d_workspace<double>(pass, s, threads) : conv2d_workspace<float>(pass, s, threads);
}

template <class F>
auto dispatch_float(DType t, F&& f) {
  return t == DType::f64 ? f(double{}) : f(float{});
}

template <ConvPass pass>
int64_t workspace(const Site& site) {
  return conv_bytes(pass, site.in[0].dtype, conv_shape(pass, site.in, site.node.get<Conv2dParams>()), site.target.threads);
}

template <ConvPass pass>
std::unique_ptr<Kernel> bind(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  if (site.out[0].numel() == 0) return host_kernel([] {});
  const ConvShape s = conv_shape(pass, site.in, site.node.get<Conv2dParams>());
  return dispatch_float(site.in[0].dtype, [&](auto t) {
    using T = decltype(t);
    return host_kernel([s, &pool = host.pool, y = host.y<T>(), a = host.x<T>(0), b = host.x<T>(1), space = host.workspace] {
      if constexpr (pass == ConvPass::forward) conv2d_forward<T>(pool, s, y, a, b, {}, space);
      if constexpr (pass == ConvPass::dx) conv2d_dx<T>(pool, s, y, a, b, space);
      if constexpr (pass == ConvPass::dw) conv2d_dw<T>(pool, s, y, a, b, space);
    });
  });
}

std::string accepts_chain(const Site& site) {
  std::string reason;
  return find_chain(site.node.get<FusedParams>(), "conv2d", &reason) ? "" : reason;
}

int64_t chain_bytes(const Chain& c, int threads) {
  const ConvShape s = conv_shape(ConvPass::forward, c.head_in, c.head.get<Conv2dParams>());
  return round_up(conv_bytes(ConvPass::forward, c.head_out.dtype, s, threads), 64);
}

int64_t workspace_chain(const Site& site) {
  std::string reason;
  const Chain c = *find_chain(site.node.get<FusedParams>(), "conv2d", &reason);
  return chain_bytes(c, site.target.threads) + (c.loop ? Loop::workspace(*c.loop) : 0);
}

std::unique_ptr<Kernel> bind_chain(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  std::string reason;
  const Chain c = *find_chain(site.node.get<FusedParams>(), "conv2d", &reason);
  if (c.head_out.numel() == 0) return host_kernel([] {});
  const size_t bytes = static_cast<size_t>(chain_bytes(c, site.target.threads));
  std::byte* product = host.out[static_cast<size_t>(c.output)];
  std::shared_ptr<const Loop> loop;
  if (c.loop) {
    std::vector<std::byte*> in = host.in;
    in.push_back(product);
    loop = std::make_shared<const Loop>(*c.loop, in, host.out, host.workspace.data() + bytes);
  }
  const ConvShape s = conv_shape(ConvPass::forward, c.head_in, c.head.get<Conv2dParams>());
  return dispatch_float(c.head_out.dtype, [&](auto t) {
    using T = decltype(t);
    const T* x = host.x<T>(static_cast<size_t>(c.inputs[0]));
    const T* w = host.x<T>(static_cast<size_t>(c.inputs[1]));
    return host_kernel([s, loop, x, w, y = reinterpret_cast<T*>(product), e = chain_epilogue<T>(c, host.in), &pool = host.pool,
                        space = host.workspace.first(std::min(bytes, host.workspace.size()))] {
      conv2d_forward<T>(pool, s, y, x, w, e, space);
      if (loop) loop->run(pool);
    });
  });
}

}  // namespace

std::vector<KernelTable::Row> conv2d_rows() {
  return {{"conv2d", {"cpu_conv", accepts_wide, workspace<ConvPass::forward>, bind<ConvPass::forward>}},
          {"conv2d_dx", {"cpu_conv_dx", accepts_wide, workspace<ConvPass::dx>, bind<ConvPass::dx>}},
          {"conv2d_dw", {"cpu_conv_dw", accepts_wide, workspace<ConvPass::dw>, bind<ConvPass::dw>}},
          {"fused", {"cpu_conv_chain", accepts_chain, workspace_chain, bind_chain}}};
}

}  // namespace lathe::cpu
