#include "ops/conv1d.h"

#include <algorithm>

#include "base/checked.h"
#include "ops/conv2d.h"
#include "ops/elementwise.h"
#include "ops/pad.h"
#include "ops/reshape.h"
#include "ops/slice.h"

namespace lathe {
namespace {

constexpr int64_t kMostTaps = 64;  // in depth: each is a convolution

void check_floats(const char* op, ArgValues x, int ndim) {
  for (const Value& v : x)
    LATHE_USER_CHECK(is_float(v.dtype()) && v.dtype() == x[0].dtype() && v.ndim() == ndim,
                     "{}: expected floats of {} dimensions, got {} and {}", op, ndim, to_string(x[0].type()),
                     to_string(v.type()));
}

// [A, L, B] -> [A, 1, L, B]
Value as_image(Value x) { return reshape(x, {x.dim(0), 1, x.dim(1), x.dim(2)}); }
Value as_line(Value x) { return reshape(x, {x.dim(0), x.dim(2), x.dim(3)}); }

struct Conv1d {
  using Params = Conv1dParams;
  static constexpr OpInfo info{.name = "conv1d", .doc = "convolution of N L C with O K C weights", .inputs = 2};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    check_floats("conv1d", x, 3);
    const Conv2dParams flat{.stride_w = p.stride,
                            .pad_left = p.pad_left,
                            .pad_right = p.pad_right,
                            .dilation_w = p.dilation,
                            .groups = p.groups};
    return {as_line(conv2d(as_image(x[0]), as_image(x[1]), flat))};
  }
  static std::vector<Sample> samples() {
    return {{"strided", {{{DType::f32, {2, 7, 4}}}, {{DType::f32, {6, 3, 2}}}}, make_params(Params{2, 1, 2, 2, 2})}};
  }
};

struct Conv3d {
  using Params = Conv3dParams;
  static constexpr OpInfo info{
      .name = "conv3d", .doc = "convolution of N D H W C with O KD KH KW C weights", .inputs = 2};

  static WindowAxis depth_of(const Shape& x, const Shape& w, const Params& p) {
    for (const Ints* list : {&p.stride, &p.pad, &p.dilation})
      LATHE_USER_CHECK(list->size() == 3, "conv3d: expected numbers for depth, height and width, got {}", list->size());
    LATHE_USER_CHECK(w[1] <= kMostTaps, "conv3d: {} taps in depth", w[1]);
    return window_axis("conv3d", "depth", x[1], w[1], p.stride[0], p.pad[0], p.pad[0], p.dilation[0]);
  }

  static Values expand(Builder&, ArgValues in, const Params& p) {
    check_floats("conv3d", in, 5);
    const WindowAxis d = depth_of(in[0].shape(), in[1].shape(), p);
    const Value x = p.pad[0] == 0 ? in[0] : pad(in[0], {0, p.pad[0], 0, 0, 0}, {0, p.pad[0], 0, 0, 0});
    const Shape s = x.shape(), ws = in[1].shape();
    const Conv2dParams flat{.stride_h = p.stride[1],
                            .stride_w = p.stride[2],
                            .pad_top = p.pad[1],
                            .pad_bottom = p.pad[1],
                            .pad_left = p.pad[2],
                            .pad_right = p.pad[2],
                            .dilation_h = p.dilation[1],
                            .dilation_w = p.dilation[2],
                            .groups = p.groups};
    Value sum;
    for (int64_t tap = 0; tap < d.kernel; ++tap) {
      const Value layers =
          slice(x, {0, tap * p.dilation[0], 0, 0, 0}, {s[0], d.out, s[2], s[3], s[4]}, {1, p.stride[0], 1, 1, 1});
      const Value w = reshape(slice_axis(in[1], 1, tap, 1), {ws[0], ws[2], ws[3], ws[4]});
      const Value part = conv2d(reshape(layers, {s[0] * d.out, s[2], s[3], s[4]}), w, flat);
      sum = sum ? sum + part : part;
    }
    return {reshape(sum, {s[0], d.out, sum.dim(1), sum.dim(2), sum.dim(3)})};
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const Shape &in = x[0].shape(), &w = x[1].shape(), &out = y[0].shape();
    const int64_t group_out = out[4] / p.groups, group_in = w[4];
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      const int64_t o = i % out[4], ow = i / out[4] % out[3], oh = i / out[4] / out[3] % out[2],
                    od = i / out[4] / out[3] / out[2] % out[1], n = i / out[4] / out[3] / out[2] / out[1];
      double sum = 0;
      for (int64_t a = 0; a < w[1]; ++a)
        for (int64_t b = 0; b < w[2]; ++b)
          for (int64_t c = 0; c < w[3]; ++c) {
            const auto at = [&](size_t axis, int64_t window, int64_t tap) {
              return window * p.stride[axis] - p.pad[axis] + tap * p.dilation[axis];
            };
            const int64_t d = at(0, od, a), h = at(1, oh, b), v = at(2, ow, c);
            if (d < 0 || d >= in[1] || h < 0 || h >= in[2] || v < 0 || v >= in[3]) continue;
            for (int64_t k = 0; k < group_in; ++k)
              sum += x[0][(((n * in[1] + d) * in[2] + h) * in[3] + v) * in[4] + o / group_out * group_in + k] *
                     x[1][(((o * w[1] + a) * w[2] + b) * w[3] + c) * w[4] + k];
          }
      y[0][i] = sum;
    }
  }

  static std::vector<Sample> samples() {
    return {{"strided",
             {{{DType::f32, {1, 5, 4, 4, 2}}}, {{DType::f32, {4, 2, 3, 2, 1}}}},
             make_params(Params{{2, 1, 2}, {1, 1, 0}, {2, 1, 1}, 2})}};
  }
};

struct TransposedAxis {
  int64_t stride, pad, dilation, extra, size;  // size: of the output
};

TransposedAxis transposed_axis(const char* op, Value x, Value w, const ConvTransposeParams& p, int axes, int i) {
  const auto number = [&](const Ints& list, int axis, int64_t standard, int64_t least) {
    if (list.empty()) return standard;
    LATHE_USER_CHECK(static_cast<int>(list.size()) == axes && list[static_cast<size_t>(axis)] >= least,
                     "{}: expected {} numbers of at least {}, got {}", op, axes, least, fmt::join(list, ", "));
    return list[static_cast<size_t>(axis)];
  };
  TransposedAxis a{number(p.stride, i, 1, 1), number(p.pad, i, 0, 0), number(p.dilation, i, 1, 1),
                   number(p.extra, i, 0, 0), 0};
  const int64_t n = x.dim(i + 1), taps = w.dim(i + 1);
  LATHE_USER_CHECK(n >= 1 && taps >= 1 && a.extra < a.stride, "{}: {} elements, {} taps, {} extra for stride {}", op, n,
                   taps, a.extra, a.stride);
  const int64_t span = checked_add(checked_mul(taps - 1, a.dilation, op), checked_mul(n - 1, a.stride, op), op);
  a.size = checked_add(span, 1 + a.extra, op) - checked_mul(a.pad, 2, op);
  LATHE_USER_CHECK(a.size >= 1, "{}: padding {} leaves nothing", op, a.pad);
  return a;
}

// The convolution of images whose derivative it is, and the size that it makes.
Value transposed_image(Value x, Value w, const TransposedAxis& h, const TransposedAxis& v, int64_t groups) {
  const Conv2dParams conv{.stride_h = h.stride,
                          .stride_w = v.stride,
                          .pad_top = h.pad,
                          .pad_bottom = h.pad,
                          .pad_left = v.pad,
                          .pad_right = v.pad,
                          .dilation_h = h.dilation,
                          .dilation_w = v.dilation,
                          .groups = groups};
  return conv2d_dx(x, w, conv, h.size, v.size);
}

// axes: 1 or 2
Value transposed(const char* op, Value x, Value w, const ConvTransposeParams& p, int axes) {
  const TransposedAxis none{1, 0, 1, 0, 1}, h = axes == 2 ? transposed_axis(op, x, w, p, axes, 0) : none,
                                            v = transposed_axis(op, x, w, p, axes, axes - 1);
  LATHE_USER_CHECK(x.dim(-1) == w.dim(0), "{}: w takes {} channels, x has {}", op, w.dim(0), x.dim(-1));
  if (axes == 2) return transposed_image(x, w, h, v, p.groups);
  return as_line(transposed_image(as_image(x), as_image(w), h, v, p.groups));
}

struct ConvTranspose1d {
  using Params = ConvTransposeParams;
  static constexpr OpInfo info{
      .name = "conv_transpose1d", .doc = "transposed convolution of N L C with C K O weights", .inputs = 2};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    check_floats("conv_transpose1d", x, 3);
    return {transposed("conv_transpose1d", x[0], x[1], p, 1)};
  }
  static std::vector<Sample> samples() {
    return {{"strided",
             {{{DType::f32, {2, 5, 4}}}, {{DType::f32, {4, 3, 3}}}},
             make_params(Params{{2}, {1}, {1}, {1}, 2})}};
  }
};

struct ConvTranspose2d {
  using Params = ConvTransposeParams;
  static constexpr OpInfo info{
      .name = "conv_transpose2d", .doc = "transposed convolution of N H W C with C KH KW O weights", .inputs = 2};

  static Values expand(Builder&, ArgValues x, const Params& p) {
    check_floats("conv_transpose2d", x, 4);
    return {transposed("conv_transpose2d", x[0], x[1], p, 2)};
  }

  static std::vector<Sample> samples() {
    return {{"strided",
             {{{DType::f32, {1, 3, 4, 2}}}, {{DType::f32, {2, 3, 2, 3}}}},
             make_params(Params{{2, 3}, {1, 0}, {1, 2}, {1, 0}, 1})}};
  }
};

struct ConvTranspose3d {
  using Params = ConvTransposeParams;
  static constexpr OpInfo info{
      .name = "conv_transpose3d", .doc = "transposed convolution of N D H W C with C KD KH KW O weights", .inputs = 2};

  static Values expand(Builder&, ArgValues in, const Params& p) {
    check_floats("conv_transpose3d", in, 5);
    const Value x = in[0], w = in[1];
    const auto axis = [&](int i) { return transposed_axis("conv_transpose3d", x, w, p, 3, i); };
    const TransposedAxis depth = axis(0), height = axis(1), width = axis(2);
    const int64_t n = x.dim(0), layers = x.dim(1), taps = w.dim(1);
    LATHE_USER_CHECK(x.dim(4) == w.dim(0), "conv_transpose3d: w takes {} channels, x has {}", w.dim(0), x.dim(4));
    LATHE_USER_CHECK(taps <= kMostTaps, "conv_transpose3d: {} taps in depth", taps);
    const Value planes = reshape(x, {n * layers, x.dim(2), x.dim(3), x.dim(4)});
    Value sum;
    int64_t channels = 0;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const Value tap_w = reshape(slice_axis(w, 1, tap, 1), {w.dim(0), w.dim(2), w.dim(3), w.dim(4)});
      const Value part = transposed_image(planes, tap_w, height, width, p.groups);
      channels = part.dim(3);
      // Each layer to its place in the depth of the result, padding still included.
      const Value spread =
          pad(reshape(part, {n, layers, height.size * width.size * channels}), {0, tap * depth.dilation, 0},
              {0, (taps - 1 - tap) * depth.dilation + depth.extra, 0}, 0, {0, depth.stride - 1, 0});
      sum = sum ? sum + spread : spread;
    }
    if (depth.pad > 0) sum = slice_axis(sum, 1, depth.pad, depth.size);
    return {reshape(sum, {n, depth.size, height.size, width.size, channels})};
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const Shape &in = x[0].shape(), &w = x[1].shape(), &out = y[0].shape();
    const int64_t group_in = in[4] / p.groups, group_out = w[4];
    const auto number = [](const Ints& list, int axis, int64_t standard) {
      return list.empty() ? standard : list[static_cast<size_t>(axis)];
    };
    const auto place = [&](int axis, int64_t element, int64_t tap) {
      return element * number(p.stride, axis, 1) - number(p.pad, axis, 0) + tap * number(p.dilation, axis, 1);
    };
    std::fill_n(y[0].data, y[0].numel(), 0.0);
    for (int64_t i = 0; i < x[0].numel(); ++i) {
      const int64_t c = i % in[4], iw = i / in[4] % in[3], ih = i / in[4] / in[3] % in[2],
                    id = i / in[4] / in[3] / in[2] % in[1], n = i / in[4] / in[3] / in[2] / in[1];
      for (int64_t a = 0; a < w[1]; ++a)
        for (int64_t b = 0; b < w[2]; ++b)
          for (int64_t k = 0; k < w[3]; ++k) {
            const int64_t d = place(0, id, a), h = place(1, ih, b), v = place(2, iw, k);
            if (d < 0 || d >= out[1] || h < 0 || h >= out[2] || v < 0 || v >= out[3]) continue;
            for (int64_t o = 0; o < group_out; ++o)
              y[0][(((n * out[1] + d) * out[2] + h) * out[3] + v) * out[4] + c / group_in * group_out + o] +=
                  x[0][i] * x[1][(((c * w[1] + a) * w[2] + b) * w[3] + k) * w[4] + o];
          }
    }
  }

  static std::vector<Sample> samples() {
    return {{"strided",
             {{{DType::f32, {1, 3, 4, 2, 2}}}, {{DType::f32, {2, 3, 2, 3, 2}}}},
             make_params(Params{
                 .stride = {2, 1, 3}, .pad = {1, 0, 1}, .dilation = {1, 2, 1}, .extra = {1, 0, 2}, .groups = 2})}};
  }
};

template <class P>
Value add_conv(const OpDef& op, Value x, Value w, P p) {
  const Value in[] = {x, w};
  return x.builder().add1(op, in, std::move(p));
}

}  // namespace

constinit const OpDef conv1d_op = make_op<Conv1d>();
constinit const OpDef conv3d_op = make_op<Conv3d>();
constinit const OpDef conv_transpose1d_op = make_op<ConvTranspose1d>();
constinit const OpDef conv_transpose2d_op = make_op<ConvTranspose2d>();
constinit const OpDef conv_transpose3d_op = make_op<ConvTranspose3d>();

Value conv1d(Value x, Value w, Conv1dParams p) { return add_conv(conv1d_op, x, w, p); }
Value conv3d(Value x, Value w, Conv3dParams p) { return add_conv(conv3d_op, x, w, std::move(p)); }
Value conv_transpose1d(Value x, Value w, ConvTransposeParams p) {
  return add_conv(conv_transpose1d_op, x, w, std::move(p));
}
Value conv_transpose2d(Value x, Value w, ConvTransposeParams p) {
  return add_conv(conv_transpose2d_op, x, w, std::move(p));
}
Value conv_transpose3d(Value x, Value w, ConvTransposeParams p) {
  return add_conv(conv_transpose3d_op, x, w, std::move(p));
}

}  // namespace lathe
