#include "ops/cumsum.h"

#include "ops/elementwise.h"
#include "ops/pad.h"
#include "ops/slice.h"

namespace lathe {
namespace {

Types infer_scan(const char* op, ArgTypes x, const ScanParams& p) {
  LATHE_USER_CHECK(x[0].dtype != DType::b8, "{}: bool is not a number; cast it", op);
  LATHE_USER_CHECK(p.axis >= 0 && p.axis < x[0].shape.ndim(), "{}: axis {} is out of range for {}", op, p.axis,
                   to_string(x[0].shape));
  return {x[0]};
}

// x moved by `by` places along the axis, away from where the scan starts; `fill` comes in.
Value shifted(Value x, const ScanParams& p, int64_t by, double fill) {
  const int axis = static_cast<int>(p.axis);
  Ints low(static_cast<size_t>(x.ndim()), 0), high = low;
  (p.reverse ? high : low)[static_cast<size_t>(axis)] = by;
  return pad(slice_axis(x, axis, p.reverse ? by : 0, x.dim(axis) - by), low, high, fill);
}

Value scan(Value x, const ScanParams& p, double fill, Value (*combine)(Value, Value)) {
  const int64_t n = x.dim(static_cast<int>(p.axis));
  if (p.exclusive && n > 0) x = shifted(x, p, 1, fill);
  for (int64_t by = 1; by < n; by *= 2) x = combine(x, shifted(x, p, by, fill));
  return x;
}

template <class F>
void scan_reference(RefOuts y, RefIns x, const ScanParams& p, double start, F&& combine) {
  const Shape& s = x[0].shape();
  const int64_t n = s[static_cast<int>(p.axis)], inner = s.strides()[static_cast<size_t>(p.axis)];
  for (int64_t row = 0; n > 0 && row < s.numel() / n; ++row) {
    const int64_t base = row / inner * n * inner + row % inner;
    double so_far = start;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at = base + (p.reverse ? n - 1 - k : k) * inner;
      const double with = combine(so_far, x[0][at]);
      y[0][at] = p.exclusive ? so_far : with;
      so_far = with;
    }
  }
}

std::vector<Sample> scan_samples() {
  const auto s = [](const char* label, Shape shape, ScanParams p) {
    return Sample{label, {{{DType::f32, shape}, 0.5, 1.5}}, make_params(p)};
  };
  return {s("rows", {5, 7}, {1, false, false}), s("middle", {2, 5, 3}, {1, true, false}),
          s("reverse", {6}, {0, false, true}), s("both", {3, 4}, {0, true, true}), s("one", {3, 1}, {1, false, false})};
}

struct Cumsum {
  using Params = ScanParams;
  static constexpr OpInfo info{.name = "cumsum", .doc = "running sum along an axis", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) { return infer_scan("cumsum", x, p); }
  static Values expand(Builder&, ArgValues x, const Params& p) { return {scan(x[0], p, 0, add)}; }
  static Values vjp(const Vjp& v, const Params& p) {
    return {cumsum(v.dy(), static_cast<int>(p.axis), p.exclusive, !p.reverse)};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    scan_reference(y, x, p, 0, [](double a, double b) { return a + b; });
  }
  static std::vector<Sample> samples() { return scan_samples(); }
};

struct Cumprod {
  using Params = ScanParams;
  static constexpr OpInfo info{.name = "cumprod", .doc = "running product along an axis", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) { return infer_scan("cumprod", x, p); }
  static Values expand(Builder&, ArgValues x, const Params& p) { return {scan(x[0], p, 1, mul)}; }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    scan_reference(y, x, p, 1, [](double a, double b) { return a * b; });
  }
  static std::vector<Sample> samples() { return scan_samples(); }
};

Value add_scan(const OpDef& op, Value x, int axis, bool exclusive, bool reverse) {
  return x.builder().add1(op, std::span(&x, 1),
                          ScanParams{normalize_axis(axis, x.ndim(), op.name().data()), exclusive, reverse});
}

}  // namespace

constinit const OpDef cumsum_op = make_op<Cumsum>();
constinit const OpDef cumprod_op = make_op<Cumprod>();

Value cumsum(Value x, int axis, bool exclusive, bool reverse) {
  return add_scan(cumsum_op, x, axis, exclusive, reverse);
}
Value cumprod(Value x, int axis, bool exclusive, bool reverse) {
  return add_scan(cumprod_op, x, axis, exclusive, reverse);
}

}  // namespace lathe
