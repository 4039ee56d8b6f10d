#include "ops/adaptive_pool.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "ops/concat.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/slice.h"

namespace lathe {
namespace {

// Outputs of an axis whose windows differ in size: each is a node.
constexpr int64_t kMostWindows = 512;

Types infer_adaptive(const char* op, const TensorType& x, const AdaptivePoolParams& p) {
  LATHE_USER_CHECK(is_float(x.dtype) && x.shape.ndim() == 4, "{}: expected float images [N, H, W, C], got {}", op,
                   to_string(x));
  const auto check_axis = [&](int64_t n, int64_t size) {
    LATHE_USER_CHECK(size >= 1 && n >= 1 && (n % size == 0 || size <= kMostWindows), "{}: {} pixels to {}", op, n,
                     size);
  };
  check_axis(x.shape[1], p.size_h);
  check_axis(x.shape[2], p.size_w);
  return {{x.dtype, {x.shape[0], p.size_h, p.size_w, x.shape[3]}}};
}

struct PoolWindow {
  int64_t begin, end;
};
PoolWindow window_of(int64_t i, int64_t n, int64_t size) { return {i * n / size, ceil_div((i + 1) * n, size)}; }

// Reduces every window along an axis; equal windows at once.
Value pool_axis(Value x, int axis, int64_t size, Value (*reduce)(Value, Ints, bool)) {
  const Shape s = x.shape();
  const int64_t n = s[axis];
  if (n == size) return x;
  if (n % size == 0) {
    Ints parted = s.to_ints();
    parted[static_cast<size_t>(axis)] = size;
    parted.insert(parted.begin() + axis + 1, n / size);
    return reduce(reshape(x, Shape(parted)), {axis + 1}, false);
  }
  Values out;
  for (int64_t i = 0; i < size; ++i) {
    const PoolWindow w = window_of(i, n, size);
    out.push_back(reduce(slice_axis(x, axis, w.begin, w.end - w.begin), {axis}, true));
  }
  return concat(out, axis);
}

template <class F>
void adaptive_reference(RefOuts y, RefIns x, const AdaptivePoolParams& p, F&& reduce) {
  const Shape &in = x[0].shape(), &out = y[0].shape();
  for (int64_t i = 0; i < y[0].numel(); ++i) {
    const int64_t c = i % out[3], n = i / out[3] / out[2] / out[1];
    const PoolWindow h = window_of(i / out[3] / out[2] % out[1], in[1], p.size_h),
                     w = window_of(i / out[3] % out[2], in[2], p.size_w);
    std::vector<double> seen;
    for (int64_t r = h.begin; r < h.end; ++r)
      for (int64_t k = w.begin; k < w.end; ++k) seen.push_back(x[0][((n * in[1] + r) * in[2] + k) * in[3] + c]);
    y[0][i] = reduce(seen);
  }
}

std::vector<Sample> adaptive_samples() {
  return {{"even", {{{DType::f32, {2, 4, 6, 3}}}}, make_params(AdaptivePoolParams{2, 3})},
          {"odd", {{{DType::f32, {1, 5, 4, 2}}}}, make_params(AdaptivePoolParams{3, 1})}};
}

struct AdaptiveAvgPool {
  using Params = AdaptivePoolParams;
  static constexpr OpInfo info{.name = "adaptive_avg_pool", .doc = "means of NHWC images to a given size", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) { return infer_adaptive("adaptive_avg_pool", x[0], p); }
  static Values expand(Builder&, ArgValues x, const Params& p) {
    return {pool_axis(pool_axis(x[0], 1, p.size_h, reduce_mean), 2, p.size_w, reduce_mean)};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    adaptive_reference(y, x, p, [](const std::vector<double>& seen) {
      double sum = 0;
      for (double v : seen) sum += v;
      return sum / static_cast<double>(seen.size());
    });
  }
  static std::vector<Sample> samples() { return adaptive_samples(); }
};

struct AdaptiveMaxPool {
  using Params = AdaptivePoolParams;
  static constexpr OpInfo info{
      .name = "adaptive_max_pool", .doc = "maxima of NHWC images to a given size", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) { return infer_adaptive("adaptive_max_pool", x[0], p); }
  static Values expand(Builder&, ArgValues x, const Params& p) {
    return {pool_axis(pool_axis(x[0], 1, p.size_h, reduce_max), 2, p.size_w, reduce_max)};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    adaptive_reference(y, x, p, [](const std::vector<double>& seen) { return *std::ranges::max_element(seen); });
  }
  static std::vector<Sample> samples() { return adaptive_samples(); }
};

Value add_adaptive(const OpDef& op, Value x, int64_t size_h, int64_t size_w) {
  return x.builder().add1(op, std::span(&x, 1), AdaptivePoolParams{size_h, size_w});
}

}  // namespace

constinit const OpDef adaptive_avg_pool_op = make_op<AdaptiveAvgPool>();
constinit const OpDef adaptive_max_pool_op = make_op<AdaptiveMaxPool>();

Value adaptive_avg_pool(Value x, int64_t size_h, int64_t size_w) {
  return add_adaptive(adaptive_avg_pool_op, x, size_h, size_w);
}
Value adaptive_max_pool(Value x, int64_t size_h, int64_t size_w) {
  return add_adaptive(adaptive_max_pool_op, x, size_h, size_w);
}
Value global_avg_pool(Value x) { return reshape(adaptive_avg_pool(x, 1, 1), {x.dim(0), x.dim(3)}); }
Value global_max_pool(Value x) { return reshape(adaptive_max_pool(x, 1, 1), {x.dim(0), x.dim(3)}); }

}  // namespace lathe
