#include "ops/conv2d.h"

#include <algorithm>

#include "base/checked.h"

namespace lathe {
namespace {

ConvGeometry geometry(int64_t batch, int64_t in_h, int64_t in_w, int64_t in_c, int64_t out_c, int64_t kernel_h,
                      int64_t kernel_w, int64_t group_in, const Conv2dParams& p) {
  LATHE_USER_CHECK(p.groups >= 1 && group_in >= 1 && out_c >= 1 && out_c % p.groups == 0,
                   "conv2d: {} output channels of {} inputs each in {} groups", out_c, group_in, p.groups);
  LATHE_USER_CHECK(in_c % p.groups == 0 && in_c / p.groups == group_in,
                   "conv2d: w takes {} channels in {} groups, x has {}", group_in, p.groups, in_c);
  ConvGeometry g{};
  g.batch = batch;
  g.in_h = in_h;
  g.in_w = in_w;
  g.in_c = in_c;
  g.out_c = out_c;
  g.kernel_h = kernel_h;
  g.kernel_w = kernel_w;
  g.out_h = window_axis("conv2d", "height", in_h, kernel_h, p.stride_h, p.pad_top, p.pad_bottom, p.dilation_h).out;
  g.out_w = window_axis("conv2d", "width", in_w, kernel_w, p.stride_w, p.pad_left, p.pad_right, p.dilation_w).out;
  g.groups = p.groups;
  g.group_in = group_in;
  g.group_out = out_c / p.groups;
  g.stride_h = p.stride_h;
  g.stride_w = p.stride_w;
  g.pad_top = p.pad_top;
  g.pad_left = p.pad_left;
  g.dilation_h = p.dilation_h;
  g.dilation_w = p.dilation_w;
  return g;
}

void check_ndim(const char* op, const Shape& a, const Shape& b) {
  LATHE_USER_CHECK(a.ndim() == 4 && b.ndim() == 4, "{}: expected 4 dimensions, got {} and {}", op, to_string(a),
                   to_string(b));
}

void check_types(const char* op, ArgTypes x) {
  LATHE_USER_CHECK(is_float(x[0].dtype) && x[0].dtype == x[1].dtype,
                   "{}: expected two float tensors of one type, got {} and {}", op, to_string(x[0]), to_string(x[1]));
}

// Calls f(index in x, index in w, index in y) for every product of the convolution.
template <class F>
void for_each_product(const ConvGeometry& g, F&& f) {
  const WindowAxis rows = g.rows(), columns = g.columns();
  for (int64_t n = 0; n < g.batch; ++n)
    for (int64_t oh = 0; oh < g.out_h; ++oh)
      for (int64_t ow = 0; ow < g.out_w; ++ow)
        for (int64_t o = 0; o < g.out_c; ++o)
          for (int64_t kh = 0; kh < g.kernel_h; ++kh)
            for (int64_t kw = 0; kw < g.kernel_w; ++kw) {
              const int64_t ih = rows.at(oh, kh), iw = columns.at(ow, kw);
              if (ih < 0 || ih >= g.in_h || iw < 0 || iw >= g.in_w) continue;
              const int64_t x = ((n * g.in_h + ih) * g.in_w + iw) * g.in_c + o / g.group_out * g.group_in;
              const int64_t w = ((o * g.kernel_h + kh) * g.kernel_w + kw) * g.group_in;
              const int64_t y = ((n * g.out_h + oh) * g.out_w + ow) * g.out_c + o;
              for (int64_t c = 0; c < g.group_in; ++c) f(x + c, w + c, y);
            }
}

Cost conv_cost(const ConvGeometry& g, ArgTypes in, ArgTypes out) {
  Cost c = detail::cost_of_bytes(in, out);
  c.flops = g.flops();
  return c;
}

struct ConvSample {
  const char* label;
  Shape x, w;
  Conv2dParams p;
};

std::vector<ConvSample> conv_samples() {
  const auto same = [](int64_t pad) {
    return Conv2dParams{.pad_top = pad, .pad_bottom = pad, .pad_left = pad, .pad_right = pad};
  };
  const auto strided = [&](int64_t stride, int64_t pad, int64_t groups = 1) {
    Conv2dParams p = same(pad);
    p.stride_h = p.stride_w = stride;
    p.groups = groups;
    return p;
  };
  return {{"3x3", {2, 6, 5, 3}, {4, 3, 3, 3}, same(1)},
          {"1x1", {2, 4, 4, 5}, {7, 1, 1, 5}, {}},
          {"1x1_stride", {1, 5, 5, 4}, {6, 1, 1, 4}, strided(2, 0)},
          {"5x5", {1, 7, 7, 2}, {3, 5, 5, 2}, {}},
          {"stride", {2, 7, 8, 3}, {4, 3, 3, 3}, strided(2, 1)},
          {"stem", {1, 12, 12, 3}, {8, 7, 7, 3}, strided(2, 3)},
          {"groups", {1, 5, 5, 6}, {4, 3, 3, 3}, strided(1, 1, 2)},
          {"depthwise", {2, 5, 6, 9}, {9, 3, 3, 1}, strided(1, 1, 9)},
          {"depthwise_stride", {1, 6, 6, 8}, {8, 3, 3, 1}, strided(2, 1, 8)},
          {"multiplier", {1, 4, 4, 3}, {6, 3, 3, 1}, strided(1, 1, 3)},
          {"dilation", {1, 8, 9, 2}, {3, 3, 2, 2}, {.pad_top = 2, .dilation_h = 2, .dilation_w = 3}},
          {"asymmetric",
           {1, 5, 6, 2},
           {3, 2, 3, 2},
           {.stride_h = 2, .stride_w = 3, .pad_top = 1, .pad_left = 2, .pad_right = 1}},
          {"wide_padding", {1, 3, 3, 2}, {2, 2, 2, 2}, same(3)},
          {"channels", {1, 5, 5, 16}, {33, 3, 3, 16}, same(1)},
          {"many_channels", {1, 5, 4, 64}, {64, 3, 3, 64}, same(1)},
          {"no_samples", {0, 4, 4, 2}, {3, 3, 3, 2}, same(1)}};
}

struct Conv2d {
  using Params = Conv2dParams;
  static constexpr OpInfo info{
      .name = "conv2d", .doc = "convolution of NHWC images with OHWI weights", .inputs = 2, .traits = kProduct};
  static Types infer(ArgTypes x, const Params& p) {
    check_types("conv2d", x);
    return {{x[0].dtype, conv_geometry(x[0].shape, x[1].shape, p).y()}};
  }
  static Values vjp(const Vjp& v, const Params& p) {
    return {conv2d_dx(v.dy(), v.x[1], p, v.x[0].dim(1), v.x[0].dim(2)),
            conv2d_dw(v.x[0], v.dy(), p, v.x[1].dim(1), v.x[1].dim(2))};
  }
  static Cost cost(ArgTypes in, ArgTypes out, const Params& p) {
    return conv_cost(conv_geometry(in[0].shape, in[1].shape, p), in, out);
  }
  static PlacementRows placements(ArgTypes, ArgTypes, const Params&) {
    PlacementRows rows{{{split_along(0), kReplicated}, {split_along(0)}}};
    add_linear_rows(rows, 2);
    return rows;
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    std::fill_n(y[0].data, y[0].numel(), 0.0);
    for_each_product(conv_geometry(x[0].shape(), x[1].shape(), p),
                     [&](int64_t ix, int64_t iw, int64_t iy) { y[0][iy] += x[0][ix] * x[1][iw]; });
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    for (const ConvSample& s : conv_samples())
      out.push_back({s.label, {{{DType::f32, s.x}}, {{DType::f32, s.w}}}, make_params(s.p)});
    return out;
  }
};

struct Conv2dDx {
  using Params = Conv2dParams;
  static constexpr OpInfo info{
      .name = "conv2d_dx", .doc = "derivative of conv2d by x", .inputs = 2, .traits = kProduct};
  static Types infer(ArgTypes x, const Params& p) {
    check_types("conv2d_dx", x);
    return {{x[0].dtype, conv_geometry_dx(x[0].shape, x[1].shape, p).x()}};
  }
  static Values vjp(const Vjp& v, const Params& p) {
    return {conv2d(v.dy(), v.x[1], p), conv2d_dw(v.dy(), v.x[0], p, v.x[1].dim(1), v.x[1].dim(2))};
  }
  static Cost cost(ArgTypes in, ArgTypes out, const Params& p) {
    return conv_cost(conv_geometry_dx(in[0].shape, in[1].shape, p), in, out);
  }
  static PlacementRows placements(ArgTypes, ArgTypes, const Params&) {
    PlacementRows rows{{{split_along(0), kReplicated}, {split_along(0)}}};
    add_linear_rows(rows, 2);
    return rows;
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    std::fill_n(y[0].data, y[0].numel(), 0.0);
    for_each_product(conv_geometry_dx(x[0].shape(), x[1].shape(), p),
                     [&](int64_t ix, int64_t iw, int64_t iy) { y[0][ix] += x[0][iy] * x[1][iw]; });
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    for (const ConvSample& s : conv_samples()) {
      Params p = s.p;
      p.size_h = s.x[1];
      p.size_w = s.x[2];
      out.push_back({s.label, {{{DType::f32, conv_geometry(s.x, s.w, s.p).y()}}, {{DType::f32, s.w}}}, make_params(p)});
    }
    return out;
  }
};

struct Conv2dDw {
  using Params = Conv2dParams;
  static constexpr OpInfo info{
      .name = "conv2d_dw", .doc = "derivative of conv2d by w", .inputs = 2, .traits = kProduct};
  static Types infer(ArgTypes x, const Params& p) {
    check_types("conv2d_dw", x);
    return {{x[0].dtype, conv_geometry_dw(x[0].shape, x[1].shape, p).w()}};
  }
  static Values vjp(const Vjp& v, const Params& p) {
    return {conv2d_dx(v.x[1], v.dy(), p, v.x[0].dim(1), v.x[0].dim(2)), conv2d(v.x[0], v.dy(), p)};
  }
  static Cost cost(ArgTypes in, ArgTypes out, const Params& p) {
    return conv_cost(conv_geometry_dw(in[0].shape, in[1].shape, p), in, out);
  }
  static PlacementRows placements(ArgTypes, ArgTypes, const Params&) {
    PlacementRows rows{{{split_along(0), split_along(0)}, {kPartial}}};
    add_linear_rows(rows, 2);
    return rows;
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    std::fill_n(y[0].data, y[0].numel(), 0.0);
    for_each_product(conv_geometry_dw(x[0].shape(), x[1].shape(), p),
                     [&](int64_t ix, int64_t iw, int64_t iy) { y[0][iw] += x[0][ix] * x[1][iy]; });
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    for (const ConvSample& s : conv_samples()) {
      Params p = s.p;
      p.size_h = s.w[1];
      p.size_w = s.w[2];
      out.push_back({s.label, {{{DType::f32, s.x}}, {{DType::f32, conv_geometry(s.x, s.w, s.p).y()}}}, make_params(p)});
    }
    return out;
  }
};

}  // namespace

ConvGeometry conv_geometry(const Shape& x, const Shape& w, const Conv2dParams& p) {
  check_ndim("conv2d", x, w);
  LATHE_USER_CHECK(p.size_h == 0 && p.size_w == 0, "conv2d: size_h and size_w belong to its derivatives");
  return geometry(x[0], x[1], x[2], x[3], w[0], w[1], w[2], w[3], p);
}

ConvGeometry conv_geometry_dx(const Shape& dy, const Shape& w, const Conv2dParams& p) {
  check_ndim("conv2d_dx", dy, w);
  LATHE_USER_CHECK(p.groups >= 1, "conv2d_dx: {} groups", p.groups);
  const ConvGeometry g =
      geometry(dy[0], p.size_h, p.size_w, checked_mul(w[3], p.groups, "conv2d_dx"), w[0], w[1], w[2], w[3], p);
  LATHE_USER_CHECK(g.y() == dy, "conv2d_dx: dy is {}, the convolution gives {}", to_string(dy), to_string(g.y()));
  return g;
}

ConvGeometry conv_geometry_dw(const Shape& x, const Shape& dy, const Conv2dParams& p) {
  check_ndim("conv2d_dw", x, dy);
  LATHE_USER_CHECK(p.groups >= 1, "conv2d_dw: {} groups", p.groups);
  const ConvGeometry g = geometry(x[0], x[1], x[2], x[3], dy[3], p.size_h, p.size_w, x[3] / p.groups, p);
  LATHE_USER_CHECK(g.y() == dy, "conv2d_dw: dy is {}, the convolution gives {}", to_string(dy), to_string(g.y()));
  return g;
}

constinit const OpDef conv2d_op = make_op<Conv2d>();
constinit const OpDef conv2d_dx_op = make_op<Conv2dDx>();
constinit const OpDef conv2d_dw_op = make_op<Conv2dDw>();

Value conv2d(Value x, Value w, Conv2dParams p) {
  p.size_h = p.size_w = 0;
  const Value in[] = {x, w};
  return x.builder().add1(conv2d_op, in, p);
}

Value conv2d_dx(Value dy, Value w, Conv2dParams p, int64_t in_h, int64_t in_w) {
  p.size_h = in_h;
  p.size_w = in_w;
  const Value in[] = {dy, w};
  return dy.builder().add1(conv2d_dx_op, in, p);
}

Value conv2d_dw(Value x, Value dy, Conv2dParams p, int64_t kernel_h, int64_t kernel_w) {
  p.size_h = kernel_h;
  p.size_w = kernel_w;
  const Value in[] = {x, dy};
  return x.builder().add1(conv2d_dw_op, in, p);
}

}  // namespace lathe
