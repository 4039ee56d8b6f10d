#include "ops/pool1d.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/avg_pool.h"
#include "ops/max_pool.h"
#include "ops/reshape.h"

namespace lathe {
namespace {

struct AxisWindow {
  int64_t kernel, stride, pad;
};

// Of the last `axes` of depth, height and width; the others have windows of one element.
std::array<AxisWindow, 3> axis_windows(const char* op, Value x, const PoolAxesParams& p, size_t axes) {
  LATHE_USER_CHECK(is_float(x.dtype()) && x.ndim() == static_cast<int>(axes) + 2,
                   "{}: expected floats of {} dimensions, got {}", op, axes + 2, to_string(x.type()));
  const bool fits = p.kernel.size() == axes && (p.stride.empty() || p.stride.size() == axes) &&
                    (p.pad.empty() || p.pad.size() == axes);
  LATHE_USER_CHECK(fits, "{}: expected {} numbers of kernel, and of stride and pad if any, got {}, {} and {}", op, axes,
                   p.kernel.size(), p.stride.size(), p.pad.size());
  std::array<AxisWindow, 3> out{{{1, 1, 0}, {1, 1, 0}, {1, 1, 0}}};
  for (size_t i = 0; i < axes; ++i)
    out[3 - axes + i] = {p.kernel[i], p.stride.empty() ? p.kernel[i] : p.stride[i], p.pad.empty() ? 0 : p.pad[i]};
  return out;
}

PoolParams of_image(const AxisWindow& h, const AxisWindow& w) {
  return {.kernel_h = h.kernel,
          .kernel_w = w.kernel,
          .stride_h = h.stride,
          .stride_w = w.stride,
          .pad_top = h.pad,
          .pad_bottom = h.pad,
          .pad_left = w.pad,
          .pad_right = w.pad};
}

using ImagePool = Value (*)(Value, const PoolParams&);

// A maximum of maxima, and a mean of means of windows of one size, are those of all. The first of equals in depth,
// height and width is the first in depth of the first in each plane.
Value pool_axes(const char* op, Value x, const PoolAxesParams& p, size_t axes, ImagePool pool) {
  const auto [depth, height, width] = axis_windows(op, x, p, axes);
  if (axes == 1) {
    const Value y = pool(reshape(x, {x.dim(0), 1, x.dim(1), x.dim(2)}), of_image(height, width));
    return reshape(y, {x.dim(0), y.dim(2), x.dim(2)});
  }
  const int64_t n = x.dim(0), d = x.dim(1), c = x.dim(4);
  const Value planes = pool(reshape(x, {n * d, x.dim(2), x.dim(3), c}), of_image(height, width));
  const int64_t h = planes.dim(1), w = planes.dim(2);
  const Value y = pool(reshape(planes, {n, d, h * w, c}), of_image(depth, {1, 1, 0}));
  return reshape(y, {n, y.dim(1), h, w, c});
}

// Plain loops over all axes at once: f(window's number in y, element's number in x) for every element within x.
template <class F>
void each_element_of_windows(const Shape& in, const Shape& out, const PoolAxesParams& p, F&& f) {
  const int axes = in.ndim() - 2;
  const int64_t c = in[in.ndim() - 1], windows = out.numel() / std::max<int64_t>(c, 1);
  int64_t taps = 1;
  for (const int64_t k : p.kernel) taps *= k;
  for (int64_t i = 0; i < windows; ++i)
    for (int64_t tap = 0; tap < taps; ++tap) {
      int64_t window = i, element = tap, at = 0, size = 1;
      bool inside = true;
      for (int a = axes; a >= 1; --a) {
        const auto k = static_cast<size_t>(a - 1);
        const int64_t stride = p.stride.empty() ? p.kernel[k] : p.stride[k], pad = p.pad.empty() ? 0 : p.pad[k];
        const int64_t position = window % out[a] * stride - pad + element % p.kernel[k];
        inside = inside && position >= 0 && position < in[a];
        at += position * size;
        size *= in[a];
        window /= out[a];
        element /= p.kernel[k];
      }
      if (!inside) continue;
      at += window * size;  // the sample
      for (int64_t channel = 0; channel < c; ++channel) f(i * c + channel, at * c + channel);
    }
}

void max_of_windows(RefOuts y, RefIns x, const PoolAxesParams& p) {
  std::fill_n(y[0].data, y[0].numel(), -INFINITY);
  each_element_of_windows(x[0].shape(), y[0].shape(), p, [&](int64_t to, int64_t from) {
    if (x[0][from] > y[0][to] || std::isnan(x[0][from])) y[0][to] = x[0][from];
  });
}

void mean_of_windows(RefOuts y, RefIns x, const PoolAxesParams& p) {
  std::fill_n(y[0].data, y[0].numel(), 0.0);
  double taps = 1;
  for (const int64_t k : p.kernel) taps *= static_cast<double>(k);
  each_element_of_windows(x[0].shape(), y[0].shape(), p,
                          [&](int64_t to, int64_t from) { y[0][to] += x[0][from] / taps; });
}

std::vector<Sample> line_pool_samples() {
  return {{"overlap", {{{DType::f32, {2, 9, 5}}}}, make_params(PoolAxesParams{{3}, {2}, {1}})},
          {"plain", {{{DType::f32, {1, 8, 16}}}}, make_params(PoolAxesParams{{2}, {}, {}})}};
}

std::vector<Sample> volume_pool_samples() {
  return {{"overlap", {{{DType::f32, {1, 5, 7, 6, 3}}}}, make_params(PoolAxesParams{{2, 3, 2}, {1, 2, 2}, {1, 1, 0}})},
          {"plain", {{{DType::f32, {2, 4, 4, 4, 2}}}}, make_params(PoolAxesParams{{2, 2, 2}, {}, {}})}};
}

struct MaxPool1d {
  using Params = PoolAxesParams;
  static constexpr OpInfo info{.name = "max_pool1d", .doc = "maximum of each window of N L C", .inputs = 1};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    return {pool_axes("max_pool1d", x[0], p, 1, max_pool)};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) { max_of_windows(y, x, p); }
  static std::vector<Sample> samples() { return line_pool_samples(); }
};

struct AvgPool1d {
  using Params = PoolAxesParams;
  static constexpr OpInfo info{
      .name = "avg_pool1d", .doc = "mean of each window of N L C; padding counts as zeros", .inputs = 1};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    return {pool_axes("avg_pool1d", x[0], p, 1, avg_pool)};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) { mean_of_windows(y, x, p); }
  static std::vector<Sample> samples() { return line_pool_samples(); }
};

struct MaxPool3d {
  using Params = PoolAxesParams;
  static constexpr OpInfo info{.name = "max_pool3d", .doc = "maximum of each window of N D H W C", .inputs = 1};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    return {pool_axes("max_pool3d", x[0], p, 3, max_pool)};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) { max_of_windows(y, x, p); }
  static std::vector<Sample> samples() { return volume_pool_samples(); }
};

struct AvgPool3d {
  using Params = PoolAxesParams;
  static constexpr OpInfo info{
      .name = "avg_pool3d", .doc = "mean of each window of N D H W C; padding counts as zeros", .inputs = 1};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    return {pool_axes("avg_pool3d", x[0], p, 3, avg_pool)};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) { mean_of_windows(y, x, p); }
  static std::vector<Sample> samples() { return volume_pool_samples(); }
};

Value add_pool(const OpDef& op, Value x, PoolAxesParams p) {
  return x.builder().add1(op, std::span(&x, 1), std::move(p));
}

}  // namespace

constinit const OpDef max_pool1d_op = make_op<MaxPool1d>();
constinit const OpDef avg_pool1d_op = make_op<AvgPool1d>();
constinit const OpDef max_pool3d_op = make_op<MaxPool3d>();
constinit const OpDef avg_pool3d_op = make_op<AvgPool3d>();

Value max_pool1d(Value x, PoolAxesParams p) { return add_pool(max_pool1d_op, x, std::move(p)); }
Value avg_pool1d(Value x, PoolAxesParams p) { return add_pool(avg_pool1d_op, x, std::move(p)); }
Value max_pool3d(Value x, PoolAxesParams p) { return add_pool(max_pool3d_op, x, std::move(p)); }
Value avg_pool3d(Value x, PoolAxesParams p) { return add_pool(avg_pool3d_op, x, std::move(p)); }

}  // namespace lathe
