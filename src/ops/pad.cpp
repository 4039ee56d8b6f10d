#include "ops/pad.h"

#include <algorithm>

#include "base/checked.h"
#include "ops/slice.h"

namespace lathe {
namespace {

struct Pad {
  using Params = PadParams;
  static constexpr OpInfo info{
      .name = "pad", .doc = "a value around the input and between its elements", .inputs = 1, .traits = kExact};

  static Types infer(ArgTypes x, const Params& p) {
    const Shape& s = x[0].shape;
    const size_t n = static_cast<size_t>(s.ndim());
    LATHE_USER_CHECK(p.low.size() == n && p.high.size() == n && p.interior.size() == n,
                     "pad: {} needs {} entries in low, high and interior, got {}, {} and {}", to_string(s), n,
                     p.low.size(), p.high.size(), p.interior.size());
    Ints out;
    for (size_t i = 0; i < n; ++i) {
      LATHE_USER_CHECK(p.low[i] >= 0 && p.high[i] >= 0 && p.interior[i] >= 0,
                       "pad: axis {}: low {}, high {}, interior {}: expected none below 0", i, p.low[i], p.high[i],
                       p.interior[i]);
      const int64_t dim = s[static_cast<int>(i)];
      const int64_t gaps = dim == 0 ? 0 : checked_mul(dim - 1, p.interior[i], "pad");
      out.push_back(checked_add(checked_add(dim, gaps, "pad"), checked_add(p.low[i], p.high[i], "pad"), "pad"));
    }
    return {{x[0].dtype, Shape(out)}};
  }

  static Values vjp(const Vjp& v, const Params& p) {
    Ints steps = p.interior;
    for (int64_t& step : steps) ++step;
    return {slice(v.dy(), p.low, v.x[0].shape().to_ints(), std::move(steps))};
  }

  static PlacementRows placements(ArgTypes x, ArgTypes, const Params& p) {
    PlacementRows rows;
    for (size_t i = 0; i < p.low.size(); ++i)
      if (p.low[i] == 0 && p.high[i] == 0 && (p.interior[i] == 0 || x[0].shape[static_cast<int>(i)] == 1))
        rows.push_back({{split_along(static_cast<int>(i))}, {split_along(static_cast<int>(i))}});
    if (p.value == 0) rows.push_back({{kPartial}, {kPartial}});
    return rows;
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const DType t = y[0].type.dtype;
    std::fill_n(y[0].data, y[0].numel(), is_float(t) ? p.value : round_to(t, p.value));
    const Ints to = y[0].shape().strides(), from = x[0].shape().strides();
    for (int64_t i = 0; i < x[0].numel(); ++i) {
      int64_t at = 0;
      for (size_t d = 0; d < to.size(); ++d)
        at += (p.low[d] + i / from[d] % x[0].shape()[static_cast<int>(d)] * (p.interior[d] + 1)) * to[d];
      y[0][at] = x[0][i];
    }
  }

  static std::vector<Sample> samples() {
    const auto s = [](const char* label, Shape shape, Ints low, Ints high, Ints interior, double value = 0) {
      return Sample{label,
                    {{{DType::f32, shape}}},
                    make_params(Params{std::move(low), std::move(high), std::move(interior), value})};
    };
    return {s("rows", {3, 5}, {1, 0}, {2, 0}, {0, 0}),
            s("image", {2, 4, 3, 5}, {0, 1, 2, 0}, {0, 1, 0, 0}, {0, 0, 0, 0}),
            s("interior", {3, 4}, {0, 1}, {1, 0}, {2, 1}),
            s("value", {5}, {2}, {3}, {0}, -1.5),
            s("nothing", {0, 3}, {1, 0}, {1, 0}, {3, 0}),
            s("scalar", {}, {}, {}, {}),
            {"i32", {{{DType::i32, {4}}, -9, 9}}, make_params(Params{{1}, {2}, {1}, 7})}};
  }
};

}  // namespace

constinit const OpDef pad_op = make_op<Pad>();

Value pad(Value x, Ints low, Ints high, double value, Ints interior) {
  if (interior.empty()) interior.assign(low.size(), 0);
  return x.builder().add1(pad_op, std::span(&x, 1),
                          PadParams{std::move(low), std::move(high), std::move(interior), value});
}

}  // namespace lathe
