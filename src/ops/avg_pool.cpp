#include "ops/avg_pool.h"

#include <algorithm>

namespace lathe {
namespace {

// Calls f(index in x, index in y) for every element of every window.
template <class F>
void for_each_element(const PoolGeometry& g, F&& f) {
  for (int64_t n = 0; n < g.batch; ++n)
    for (int64_t oh = 0; oh < g.out_h; ++oh)
      for (int64_t ow = 0; ow < g.out_w; ++ow)
        for (int64_t kh = 0; kh < g.kernel_h; ++kh)
          for (int64_t kw = 0; kw < g.kernel_w; ++kw) {
            const int64_t ih = g.rows().at(oh, kh), iw = g.columns().at(ow, kw);
            if (ih < 0 || ih >= g.in_h || iw < 0 || iw >= g.in_w) continue;
            const int64_t x = ((n * g.in_h + ih) * g.in_w + iw) * g.channels;
            const int64_t y = ((n * g.out_h + oh) * g.out_w + ow) * g.channels;
            for (int64_t c = 0; c < g.channels; ++c) f(x + c, y + c);
          }
}

double weight(const PoolParams& p) { return 1.0 / static_cast<double>(p.kernel_h * p.kernel_w); }

// Sizes of avg_pool_grad: those of the pooling of an image of size_h x size_w.
PoolGeometry grad_geometry(const Shape& dy, const PoolParams& p) {
  LATHE_USER_CHECK(dy.ndim() == 4 && p.size_h >= 1 && p.size_w >= 1, "avg_pool_grad: dy {} of an image of {} x {}",
                   to_string(dy), p.size_h, p.size_w);
  const PoolGeometry g = pool_geometry("avg_pool_grad", {dy[0], p.size_h, p.size_w, dy[3]}, p);
  LATHE_USER_CHECK(g.y() == dy, "avg_pool_grad: dy is {}, the pooling gives {}", to_string(dy), to_string(g.y()));
  return g;
}

Cost window_cost(ArgTypes in, ArgTypes out, int64_t windows, const PoolParams& p) {
  Cost c = detail::cost_of_bytes(in, out);
  c.flops = static_cast<double>(windows) * static_cast<double>(p.kernel_h * p.kernel_w);
  return c;
}

struct AvgPool {
  using Params = PoolParams;
  static constexpr OpInfo info{
      .name = "avg_pool", .doc = "mean of each window of NHWC images; padding counts as zeros", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) {
    LATHE_USER_CHECK(is_float(x[0].dtype), "avg_pool: expected floats, got {}", to_string(x[0]));
    LATHE_USER_CHECK(p.size_h == 0 && p.size_w == 0, "avg_pool: size_h and size_w belong to avg_pool_grad");
    return {{x[0].dtype, pool_geometry("avg_pool", x[0].shape, p).y()}};
  }
  static Values vjp(const Vjp& v, const Params& p) { return {avg_pool_grad(v.dy(), p, v.x[0].dim(1), v.x[0].dim(2))}; }
  static Cost cost(ArgTypes in, ArgTypes out, const Params& p) { return window_cost(in, out, out[0].numel(), p); }
  static PlacementRows placements(ArgTypes, ArgTypes, const Params&) {
    return {{{split_along(0)}, {split_along(0)}}, {{split_along(3)}, {split_along(3)}}, {{kPartial}, {kPartial}}};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    std::fill_n(y[0].data, y[0].numel(), 0.0);
    for_each_element(pool_geometry("avg_pool", x[0].shape(), p), [&](int64_t ix, int64_t iy) { y[0][iy] += x[0][ix]; });
    for (int64_t i = 0; i < y[0].numel(); ++i) y[0][i] *= weight(p);
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    for (const PoolSample& s : pool_samples()) out.push_back({s.label, {{{DType::f32, s.x}}}, make_params(s.p)});
    return out;
  }
};

struct AvgPoolGrad {
  using Params = PoolParams;
  static constexpr OpInfo info{.name = "avg_pool_grad", .doc = "derivative of avg_pool by x", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) {
    LATHE_USER_CHECK(is_float(x[0].dtype), "avg_pool_grad: expected floats, got {}", to_string(x[0]));
    return {{x[0].dtype, grad_geometry(x[0].shape, p).x()}};
  }
  static Values vjp(const Vjp& v, const Params& p) {
    Params forward = p;
    forward.size_h = forward.size_w = 0;
    return {avg_pool(v.dy(), forward)};
  }
  static Cost cost(ArgTypes in, ArgTypes out, const Params& p) { return window_cost(in, out, in[0].numel(), p); }
  static PlacementRows placements(ArgTypes, ArgTypes, const Params&) {
    return {{{split_along(0)}, {split_along(0)}}, {{split_along(3)}, {split_along(3)}}, {{kPartial}, {kPartial}}};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    std::fill_n(y[0].data, y[0].numel(), 0.0);
    for_each_element(grad_geometry(x[0].shape(), p), [&](int64_t ix, int64_t iy) { y[0][ix] += x[0][iy]; });
    for (int64_t i = 0; i < y[0].numel(); ++i) y[0][i] *= weight(p);
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    for (const PoolSample& s : pool_samples()) {
      Params p = s.p;
      p.size_h = s.x[1];
      p.size_w = s.x[2];
      out.push_back({s.label, {{{DType::f32, pool_geometry("avg_pool", s.x, s.p).y()}}}, make_params(p)});
    }
    return out;
  }
};

}  // namespace

constinit const OpDef avg_pool_op = make_op<AvgPool>();
constinit const OpDef avg_pool_grad_op = make_op<AvgPoolGrad>();

Value avg_pool(Value x, const PoolParams& p) { return x.builder().add1(avg_pool_op, std::span(&x, 1), p); }

Value avg_pool_grad(Value dy, PoolParams p, int64_t in_h, int64_t in_w) {
  p.size_h = in_h;
  p.size_w = in_w;
  return dy.builder().add1(avg_pool_grad_op, std::span(&dy, 1), p);
}

}  // namespace lathe
