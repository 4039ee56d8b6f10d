// conv2d, its two gradients, and fused nodes of kind "conv2d": by Winograd where that pays, else on conv_gemm.
#include "ops/conv2d.h"

#include <algorithm>

#include "backend/cpu/conv/conv_gemm.h"
#include "backend/cpu/conv/winograd.h"
#include "backend/cpu/families.h"
#include "backend/cpu/gemm/epilogue.h"
#include "backend/cpu/host_kernel.h"
#include "base/checked.h"

namespace lathe::cpu {
namespace {

ConvGeometry geometry_of(ConvPass pass, const Types& in, const Conv2dParams& p) {
  switch (pass) {
    case ConvPass::dx: return conv_geometry_dx(in[0].shape, in[1].shape, p);
    case ConvPass::dw: return conv_geometry_dw(in[0].shape, in[1].shape, p);
    case ConvPass::forward: break;
  }
  return conv_geometry(in[0].shape, in[1].shape, p);
}

// The two ways to compute a pass.
struct Direct {
  static constexpr double kWork = 1;
  static std::string declines(ConvPass, DType, const ConvGeometry&) { return ""; }
  static int64_t bytes(ConvPass pass, DType t, const ConvGeometry& s, int threads) {
    return t == DType::f64 ? conv2d_workspace<double>(pass, s, threads) : conv2d_workspace<float>(pass, s, threads);
  }
  template <ConvPass pass, class T>
  static void run(ThreadPool& pool, const ConvGeometry& s, T* y, const T* a, const T* b, const Epilogue<T>& e,
                  std::span<std::byte> space) {
    if constexpr (pass == ConvPass::forward) conv2d_forward<T>(pool, s, y, a, b, e, space);
    if constexpr (pass == ConvPass::dx) conv2d_dx<T>(pool, s, y, a, b, space);
    if constexpr (pass == ConvPass::dw) conv2d_dw<T>(pool, s, y, a, b, space);
  }
};

struct Winograd {
  static constexpr double kWork = 16.0 / 36;
  static std::string declines(ConvPass pass, DType t, const ConvGeometry& s) {
    return t == DType::f32 ? winograd_declines(pass, s) : fmt::format("takes no {}", to_string(t));
  }
  static int64_t bytes(ConvPass pass, DType, const ConvGeometry& s, int threads) {
    return winograd_workspace(pass, s, threads);
  }
  template <ConvPass pass, class T>
  static void run(ThreadPool& pool, const ConvGeometry& s, T* y, const T* a, const T* b, const Epilogue<T>& e,
                  std::span<std::byte> space) {
    if constexpr (!std::is_same_v<T, float>)
      throw InternalError("winograd: f32 only");
    else if constexpr (pass == ConvPass::forward)
      winograd_forward(pool, s, y, a, b, e, space);
    else
      winograd_dx(pool, s, y, a, b, space);
  }
};

template <class F>
auto dispatch_float(DType t, F&& f) {
  return t == DType::f64 ? f(double{}) : f(float{});
}

template <class Way, ConvPass pass>
std::string accepts(const Site& site) {
  const std::string reason = accepts_wide(site);
  return reason.empty()
             ? Way::declines(pass, site.in[0].dtype, geometry_of(pass, site.in, site.node.get<Conv2dParams>()))
             : reason;
}

template <class Way, ConvPass pass>
int64_t workspace(const Site& site) {
  return Way::bytes(pass, site.in[0].dtype, geometry_of(pass, site.in, site.node.get<Conv2dParams>()),
                    site.target.threads);
}

template <class Way, ConvPass pass>
std::unique_ptr<Kernel> bind(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  if (site.out[0].numel() == 0) return host_kernel([] {});
  const ConvGeometry s = geometry_of(pass, site.in, site.node.get<Conv2dParams>());
  return dispatch_float(site.in[0].dtype, [&](auto t) {
    using T = decltype(t);
    return host_kernel([s, &pool = host.pool, y = host.y<T>(), a = host.x<T>(0), b = host.x<T>(1),
                        space = host.workspace] { Way::template run<pass, T>(pool, s, y, a, b, {}, space); });
  });
}

ConvGeometry chain_geometry(const Chain& c) {
  return geometry_of(ConvPass::forward, c.head_in, c.head.get<Conv2dParams>());
}

template <class Way>
std::string accepts_chain(const Site& site) {
  std::string reason;
  const auto c = find_chain(site.node.get<FusedParams>(), "conv2d", &reason);
  return c ? Way::declines(ConvPass::forward, c->head_out.dtype, chain_geometry(*c)) : reason;
}

template <class Way>
int64_t chain_bytes(const Chain& c, int threads) {
  return round_up(Way::bytes(ConvPass::forward, c.head_out.dtype, chain_geometry(c), threads), 64);
}

template <class Way>
int64_t workspace_chain(const Site& site) {
  std::string reason;
  const Chain c = *find_chain(site.node.get<FusedParams>(), "conv2d", &reason);
  return chain_bytes<Way>(c, site.target.threads) + (c.loop ? Loop::workspace(*c.loop) : 0);
}

template <class Way>
std::unique_ptr<Kernel> bind_chain(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  std::string reason;
  const Chain c = *find_chain(site.node.get<FusedParams>(), "conv2d", &reason);
  if (c.head_out.numel() == 0) return host_kernel([] {});
  const size_t bytes = static_cast<size_t>(chain_bytes<Way>(c, site.target.threads));
  std::byte* product = host.out[static_cast<size_t>(c.output)];
  std::shared_ptr<const Loop> loop;
  if (c.loop) {
    std::vector<std::byte*> in = host.in;
    in.push_back(product);
    loop = std::make_shared<const Loop>(*c.loop, in, host.out, host.workspace.data() + bytes);
  }
  const ConvGeometry s = chain_geometry(c);
  return dispatch_float(c.head_out.dtype, [&](auto t) {
    using T = decltype(t);
    const T* x = host.x<T>(static_cast<size_t>(c.inputs[0]));
    const T* w = host.x<T>(static_cast<size_t>(c.inputs[1]));
    return host_kernel([s, loop, x, w, y = reinterpret_cast<T*>(product), e = chain_epilogue<T>(c, host.in),
                        &pool = host.pool, space = host.workspace.first(std::min(bytes, host.workspace.size()))] {
      Way::template run<ConvPass::forward, T>(pool, s, y, x, w, e, space);
      if (loop) loop->run(pool);
    });
  });
}

template <class Way, ConvPass pass>
constexpr Candidate candidate(std::string_view name) {
  return {name, accepts<Way, pass>, workspace<Way, pass>, bind<Way, pass>, "", Way::kWork};
}

template <class Way>
constexpr Candidate chain(std::string_view name) {
  return {name, accepts_chain<Way>, workspace_chain<Way>, bind_chain<Way>, "", Way::kWork};
}

}  // namespace

std::vector<KernelTable::Row> conv2d_rows() {
  return {{"conv2d", candidate<Winograd, ConvPass::forward>("cpu_winograd"), kWidened},
          {"conv2d", candidate<Direct, ConvPass::forward>("cpu_conv"), kWidened},
          {"conv2d_dx", candidate<Winograd, ConvPass::dx>("cpu_winograd_dx"), kWidened},
          {"conv2d_dx", candidate<Direct, ConvPass::dx>("cpu_conv_dx"), kWidened},
          {"conv2d_dw", candidate<Direct, ConvPass::dw>("cpu_conv_dw"), kWidened},
          {"fused", chain<Winograd>("cpu_winograd_chain")},
          {"fused", chain<Direct>("cpu_conv_chain")}};
}

}  // namespace lathe::cpu
