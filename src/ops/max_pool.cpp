#include "ops/max_pool.h"

#include <algorithm>
#include <cmath>

namespace lathe {
namespace {

// Calls f(index of the window's maximum in x, index in y) for every window.
template <class F>
void for_each_window(const PoolGeometry& g, const RefTensor& x, F&& f) {
  for (int64_t n = 0; n < g.batch; ++n)
    for (int64_t oh = 0; oh < g.out_h; ++oh)
      for (int64_t ow = 0; ow < g.out_w; ++ow)
        for (int64_t c = 0; c < g.channels; ++c) {
          int64_t best = -1;
          for (int64_t kh = 0; kh < g.kernel_h; ++kh)
            for (int64_t kw = 0; kw < g.kernel_w; ++kw) {
              const int64_t ih = g.rows().at(oh, kh), iw = g.columns().at(ow, kw);
              if (ih < 0 || ih >= g.in_h || iw < 0 || iw >= g.in_w) continue;
              const int64_t at = ((n * g.in_h + ih) * g.in_w + iw) * g.channels + c;
              if (best < 0 || x[at] > x[best] || (std::isnan(x[at]) && !std::isnan(x[best]))) best = at;
            }
          f(best, ((n * g.out_h + oh) * g.out_w + ow) * g.channels + c);
        }
}

PoolGeometry geometry(const char* op, const Shape& x, const PoolParams& p) {
  LATHE_USER_CHECK(p.size_h == 0 && p.size_w == 0, "{}: size_h and size_w belong to avg_pool_grad", op);
  return pool_geometry(op, x, p);
}

Cost window_cost(const char* op, const Shape& x, ArgTypes in, ArgTypes out, const PoolParams& p) {
  Cost c = detail::cost_of_bytes(in, out);
  c.flops = static_cast<double>(geometry(op, x, p).y().numel()) * static_cast<double>(p.kernel_h * p.kernel_w);
  return c;
}

struct MaxPool {
  using Params = PoolParams;
  static constexpr OpInfo info{
      .name = "max_pool", .doc = "maximum of each window of NHWC images", .inputs = 1, .traits = kExact};
  static Types infer(ArgTypes x, const Params& p) {
    LATHE_USER_CHECK(is_float(x[0].dtype), "max_pool: expected floats, got {}", to_string(x[0]));
    return {{x[0].dtype, geometry("max_pool", x[0].shape, p).y()}};
  }
  static Values vjp(const Vjp& v, const Params& p) { return {max_pool_grad(v.dy(), v.x[0], p)}; }
  static Cost cost(ArgTypes in, ArgTypes out, const Params& p) {
    return window_cost("max_pool", in[0].shape, in, out, p);
  }
  static PlacementRows placements(ArgTypes, ArgTypes, const Params&) {
    return {{{split_along(0)}, {split_along(0)}}, {{split_along(3)}, {split_along(3)}}};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    for_each_window(pool_geometry("max_pool", x[0].shape(), p), x[0],
                    [&](int64_t from, int64_t to) { y[0][to] = x[0][from]; });
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    for (const PoolSample& s : pool_samples()) out.push_back({s.label, {{{DType::f32, s.x}}}, make_params(s.p)});
    return out;
  }
};

struct MaxPoolGrad {
  using Params = PoolParams;
  static constexpr OpInfo info{
      .name = "max_pool_grad", .doc = "dy added at the maximum of each window of x", .inputs = 2};
  static Types infer(ArgTypes x, const Params& p) {
    const Shape y = geometry("max_pool_grad", x[1].shape, p).y();
    LATHE_USER_CHECK(is_float(x[1].dtype) && x[0] == (TensorType{x[1].dtype, y}),
                     "max_pool_grad: expected dy {}, got {}", to_string(y), to_string(x[0]));
    return {x[1]};
  }
  // The position of the maximum does not move with x.
  static Values vjp(const Vjp& v, const Params& p) { return {max_pool_pick(v.dy(), v.x[1], p), Value()}; }
  static Cost cost(ArgTypes in, ArgTypes out, const Params& p) {
    return window_cost("max_pool_grad", in[1].shape, in, out, p);
  }
  static PlacementRows placements(ArgTypes, ArgTypes, const Params&) {
    return {{{split_along(0), split_along(0)}, {split_along(0)}},
            {{split_along(3), split_along(3)}, {split_along(3)}},
            {{kPartial, kReplicated}, {kPartial}}};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    std::fill_n(y[0].data, y[0].numel(), 0.0);
    for_each_window(pool_geometry("max_pool_grad", x[1].shape(), p), x[1],
                    [&](int64_t at, int64_t window) { y[0][at] += x[0][window]; });
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    for (const PoolSample& s : pool_samples())
      out.push_back(
          {s.label, {{{DType::f32, pool_geometry("max_pool", s.x, s.p).y()}}, {{DType::f32, s.x}}}, make_params(s.p)});
    return out;
  }
};

struct MaxPoolPick {
  using Params = PoolParams;
  static constexpr OpInfo info{.name = "max_pool_pick", .doc = "t at the maximum of each window of x", .inputs = 2};
  static Types infer(ArgTypes x, const Params& p) {
    LATHE_USER_CHECK(is_float(x[1].dtype) && x[0] == x[1],
                     "max_pool_pick: expected two float tensors of one type, got {} and {}", to_string(x[0]),
                     to_string(x[1]));
    return {{x[0].dtype, geometry("max_pool_pick", x[1].shape, p).y()}};
  }
  static Values vjp(const Vjp& v, const Params& p) { return {max_pool_grad(v.dy(), v.x[1], p), Value()}; }
  static Cost cost(ArgTypes in, ArgTypes out, const Params& p) {
    return window_cost("max_pool_pick", in[1].shape, in, out, p);
  }
  static PlacementRows placements(ArgTypes, ArgTypes, const Params&) {
    return {{{split_along(0), split_along(0)}, {split_along(0)}},
            {{split_along(3), split_along(3)}, {split_along(3)}},
            {{kPartial, kReplicated}, {kPartial}}};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    for_each_window(pool_geometry("max_pool_pick", x[1].shape(), p), x[1],
                    [&](int64_t at, int64_t window) { y[0][window] = x[0][at]; });
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    for (const PoolSample& s : pool_samples())
      out.push_back({s.label, {{{DType::f32, s.x}}, {{DType::f32, s.x}}}, make_params(s.p)});
    return out;
  }
};

}  // namespace

constinit const OpDef max_pool_op = make_op<MaxPool>();
constinit const OpDef max_pool_grad_op = make_op<MaxPoolGrad>();
constinit const OpDef max_pool_pick_op = make_op<MaxPoolPick>();

Value max_pool(Value x, const PoolParams& p) { return x.builder().add1(max_pool_op, std::span(&x, 1), p); }

Value max_pool_grad(Value dy, Value x, const PoolParams& p) {
  const Value in[] = {dy, x};
  return x.builder().add1(max_pool_grad_op, in, p);
}

Value max_pool_pick(Value t, Value x, const PoolParams& p) {
  const Value in[] = {t, x};
  return x.builder().add1(max_pool_pick_op, in, p);
}

}  // namespace lathe
