#include "ops/matmul.h"

#include <algorithm>

#include "backend/cpu/families.h"
#include "backend/cpu/gemm/epilogue.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/host_kernel.h"
#include "base/checked.h"

namespace lathe::cpu {
namespace {

GemmShape gemm_shape(const Types& in, const MatmulParams& p) {
  const MatmulDims d = matmul_dims(in[0].shape, in[1].shape, p);
  return {.m = d.m, .n = d.n, .k = d.k, .batch = d.batch};
}

template <class T>
GemmArgs<T> gemm_args(const Types& in, const MatmulParams& p, const std::byte* a, const std::byte* b, std::byte* c) {
  const GemmShape s = gemm_shape(in, p);
  GemmArgs<T> args;
  args.shape = s;
  args.a = lhs(reinterpret_cast<const T*>(a), p.trans_a ? s.m : s.k, p.trans_a, s.m * s.k);
  args.b = rhs(reinterpret_cast<const T*>(b), p.trans_b ? s.k : s.n, p.trans_b, s.k * s.n);
  args.c = {.data = reinterpret_cast<T*>(c), .ld = s.n, .batch_stride = s.m * s.n};
  return args;
}

template <class F>
auto dispatch_float(DType t, F&& f) {
  return t == DType::f64 ? f(double{}) : f(float{});
}

std::string accepts(const Site& site) {
  return is_float(site.in[0].dtype) ? accepts_wide(site) : fmt::format("no product of {}", to_string(site.in[0].dtype));
}

int64_t workspace(const Site& site) {
  return gemm_workspace(gemm_shape(site.in, site.node.get<MatmulParams>()), site.target.threads);
}

std::unique_ptr<Kernel> bind(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  if (site.out[0].numel() == 0) return host_kernel([] {});
  return dispatch_float(site.in[0].dtype, [&](auto t) {
    auto g = gemm_args<decltype(t)>(site.in, site.node.get<MatmulParams>(), host.in[0], host.in[1], host.out[0]);
    g.workspace = host.workspace;
    return host_kernel([g, &pool = host.pool] { gemm(pool, g); });
  });
}

// Fused: the product with its epilogue, then the rest of the chain as a loop in place.
std::optional<Chain> chain_of(const Site& site, std::string* reason) {
  auto c = find_chain(site.node.get<FusedParams>(), "matmul", reason);
  if (c && !is_float(c->head_out.dtype)) {
    *reason = fmt::format("no product of {}", to_string(c->head_out.dtype));
    return std::nullopt;
  }
  return c;
}

std::string accepts_fused(const Site& site) {
  std::string reason;
  return chain_of(site, &reason) ? "" : reason;
}

int64_t gemm_bytes(const Chain& c, int threads) {
  return round_up(gemm_workspace(gemm_shape(c.head_in, c.head.get<MatmulParams>()), threads), 64);
}

int64_t workspace_fused(const Site& site) {
  std::string reason;
  const auto c = chain_of(site, &reason);
  return gemm_bytes(*c, site.target.threads) + (c->loop ? Loop::workspace(*c->loop) : 0);
}

std::unique_ptr<Kernel> bind_fused(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  std::string reason;
  const Chain c = *chain_of(site, &reason);
  const int64_t bytes = gemm_bytes(c, site.target.threads);
  std::byte* product = host.out[static_cast<size_t>(c.output)];
  std::shared_ptr<const Loop> loop;
  if (c.loop) {
    std::vector<std::byte*> in = host.in;
    in.push_back(product);
    loop = std::make_shared<const Loop>(*c.loop, in, host.out, host.workspace.data() + bytes);
  }
  if (c.head_out.numel() == 0) return host_kernel([] {});
  return dispatch_float(c.head_out.dtype, [&](auto t) {
    using T = decltype(t);
    auto g = gemm_args<T>(c.head_in, c.head.get<MatmulParams>(), host.in[static_cast<size_t>(c.inputs[0])],
                          host.in[static_cast<size_t>(c.inputs[1])], product);
    g.epilogue = chain_epilogue<T>(c, host.in);
    g.workspace = host.workspace.first(
        static_cast<size_t>(std::min<int64_t>(bytes, static_cast<int64_t>(host.workspace.size()))));
    return host_kernel([g, loop, &pool = host.pool] {
      gemm(pool, g);
      if (loop) loop->run(pool);
    });
  });
}

}  // namespace

std::vector<KernelTable::Row> matmul_rows() {
  return {{"matmul", {"cpu_gemm", accepts, workspace, bind}, kWidened},
          {"fused", {"cpu_gemm_chain", accepts_fused, workspace_fused, bind_fused}}};
}

}  // namespace lathe::cpu
