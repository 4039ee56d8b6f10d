#include "backend/kernels/conv2d_calls.h"

#include <algorithm>

#include "backend/conv_phase.h"
#include "base/checked.h"

namespace lathe {
namespace {

// x as the matrix of patches: rows are output pixels.
PatchView patches(const ConvGeometry& g) {
  return {.h = g.in_h,
          .w = g.in_w,
          .pitch = g.in_c,
          .channels = g.group_in,
          .grid_h = g.out_h,
          .grid_w = g.out_w,
          .taps_x = g.kernel_w,
          .base_y = -g.pad_top,
          .base_x = -g.pad_left,
          .step_y = g.stride_h,
          .step_x = g.stride_w,
          .delta_y = g.dilation_h,
          .delta_x = g.dilation_w};
}

Product forward(const ConvGeometry& g, DType t) {
  Product p;
  p.dtype = t;
  p.batch = g.groups;
  p.m = g.batch * g.out_h * g.out_w;
  p.n = g.group_out;
  p.k = g.kernel_h * g.kernel_w * g.group_in;
  p.a_image = patches(g);
  p.a_strides.batch = g.group_in;
  p.b_strides = {g.group_out * p.k, 1, p.k};
  p.c_batch = g.group_out;
  p.c_row = g.out_c;
  return p;
}

Product weight_gradient(const ConvGeometry& g, DType t) {
  Product p;
  p.dtype = t;
  p.batch = g.groups;
  p.m = g.group_out;
  p.n = g.kernel_h * g.kernel_w * g.group_in;
  p.k = g.batch * g.out_h * g.out_w;
  p.b_image = patches(g);
  p.b_strides.batch = g.group_in;
  p.a_strides = {g.group_out, 1, g.out_c};
  p.c_batch = p.m * p.n;
  p.c_row = p.n;
  return p;
}

Product data_gradient(const ConvGeometry& g, DType t, int64_t py, int64_t px, const ConvPhase& y, const ConvPhase& x) {
  Product p;
  p.dtype = t;
  p.batch = g.groups;
  p.m = g.batch * y.size * x.size;
  p.n = g.group_in;
  p.k = y.taps * x.taps * g.group_out;
  p.a_strides.batch = g.group_out;
  p.a_image = PatchView{.h = g.out_h,
                        .w = g.out_w,
                        .pitch = g.out_c,
                        .channels = g.group_out,
                        .grid_h = y.size,
                        .grid_w = x.size,
                        .taps_x = std::max<int64_t>(1, x.taps),
                        .base_y = y.base,
                        .base_x = x.base,
                        .step_y = 1,
                        .step_x = 1,
                        .delta_y = y.delta,
                        .delta_x = x.delta};
  const int64_t filter = g.kernel_h * g.kernel_w * g.group_in;
  p.b_strides = {g.group_out * filter, filter, 1};
  p.b_taps = Product::Taps{.taps_x = std::max<int64_t>(1, x.taps),
                           .inner = g.group_out,
                           .y = y.step * g.kernel_w * g.group_in,
                           .x = x.step * g.group_in};
  p.b.value = (y.first * g.kernel_w + x.first) * g.group_in;
  p.c.value = (py * g.in_w + px) * g.in_c;
  p.c_batch = g.group_in;
  p.c_row = g.stride_w * g.in_c;
  if (g.stride_h > 1 || g.stride_w > 1)
    p.c_grid = Product::Grid{
        .image = g.in_h * g.in_w * g.in_c, .line = g.stride_h * g.in_w * g.in_c, .h = y.size, .w = x.size};
  return p;
}

// The pixels of dx split by their position modulo the strides: in each class the same taps are live.
std::vector<Product> data_gradients(const ConvGeometry& g, DType t) {
  std::vector<Product> out;
  for (int64_t py = 0; py < g.stride_h; ++py) {
    const ConvPhase y = conv_phase(py, g.rows());
    for (int64_t px = 0; px < g.stride_w; ++px) {
      const ConvPhase x = conv_phase(px, g.columns());
      if (y.size > 0 && x.size > 0) out.push_back(data_gradient(g, t, py, px, y, x));
    }
  }
  return out;
}

}  // namespace

std::vector<Product> conv2d_products(ConvPass pass, const TensorType& x0, const TensorType& x1, const Conv2dParams& p) {
  std::vector<Product> products;
  switch (pass) {
    case ConvPass::forward: products = {forward(conv_geometry(x0.shape, x1.shape, p), x0.dtype)}; break;
    case ConvPass::dx: products = data_gradients(conv_geometry_dx(x0.shape, x1.shape, p), x0.dtype); break;
    case ConvPass::dw: products = {weight_gradient(conv_geometry_dw(x0.shape, x1.shape, p), x0.dtype)}; break;
  }
  // a of the weight gradient is dy, the op's second input.
  for (Product& q : products) {
    q.c = out_arg(0, x0.dtype, q.c.value);
    q.a = in_arg(pass == ConvPass::dw ? 1 : 0, x0.dtype);
    q.b = in_arg(pass == ConvPass::dw ? 0 : 1, x0.dtype, q.b.value);
  }
  return products;
}

}  // namespace lathe
