#include "ops/sort.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/gather.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/slice.h"

namespace lathe {
namespace {

void check_sort(const char* op, const TensorType& x) {
  LATHE_USER_CHECK(x.dtype != DType::b8 && x.shape.ndim() >= 1, "{}: expected numbers [..., n], got {}", op,
                   to_string(x));
  LATHE_USER_CHECK(x.numel() <= std::numeric_limits<int32_t>::max(), "{}: {} elements are more than i32 counts", op,
                   x.numel());
}

// [rows, n] as numbers of a row and place: row * n + index.
Value flat_index(Value index) {
  const int64_t rows = index.dim(0), n = index.dim(1);
  return index + iota(index.builder(), {DType::i32, {rows, 1}}, 0) * static_cast<double>(n);
}

// The place of each element of x [rows, n] in its sorted row.
Value ranks(Value x, bool descending) {
  Builder& b = x.builder();
  const int64_t rows = x.dim(0), n = x.dim(1);
  const Value mine = reshape(x, {rows, n, 1}), other = reshape(x, {rows, 1, n});
  const Value earlier = less(iota(b, {DType::i32, {1, 1, n}}, 2), iota(b, {DType::i32, {1, n, 1}}, 1));
  Value before = descending ? less(mine, other) : less(other, mine), same = equal(mine, other);
  if (is_float(x.dtype())) {
    const Value my_nan = not_equal(mine, mine), other_nan = not_equal(other, other);
    before = logical_or(before, logical_and(my_nan, logical_not(other_nan)));
    same = logical_or(same, logical_and(my_nan, other_nan));
  }
  return reduce_sum(cast(logical_or(before, logical_and(same, earlier)), DType::i32), {2});
}

Value order_of(Value x, bool descending) {
  const Shape s = x.shape();
  const int64_t n = s.dim(-1), rows = n > 0 ? s.numel() / n : 0;
  if (s.numel() == 0) return zeros(x.builder(), {DType::i32, s});
  const Value rank = ranks(reshape(x, {rows, n}), descending);
  const Value places = iota(x.builder(), {DType::i32, {rows * n}}, 0);
  // Each place has one rank, so the sum over equal ones is the one.
  const Value order = scatter_add(reshape(flat_index(rank), {rows * n}), places, rows * n);
  const Value start = iota(x.builder(), {DType::i32, {rows, 1}}, 0) * static_cast<double>(n);
  return reshape(reshape(order, {rows, n}) - start, s);
}

// Elements of each row by index along the last axis.
Value pick(Value x, Value indices) {
  const Shape s = x.shape(), to = indices.shape();
  const int64_t n = s.dim(-1), k = to.dim(-1), rows = n > 0 ? s.numel() / n : 0;
  if (to.numel() == 0) return zeros(x.builder(), {x.dtype(), to});
  const Value at = reshape(indices, {rows, k}) + iota(x.builder(), {DType::i32, {rows, 1}}, 0) * static_cast<double>(n);
  return reshape(gather(reshape(x, {rows * n}), at), to);
}

bool comes_before(double a, double b, bool descending) {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a);
  return descending ? a > b : a < b;
}

// Calls f(row, order of the row).
template <class F>
void sort_reference(const RefTensor& x, bool descending, F&& f) {
  if (x.numel() == 0) return;
  const int64_t n = x.shape().dim(-1);
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (int64_t row = 0; row < x.numel() / n; ++row) {
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
      return comes_before(x[row * n + a], x[row * n + b], descending) &&
             !(std::isnan(x[row * n + a]) && std::isnan(x[row * n + b]));
    });
    f(row, order);
  }
}

struct ArgSort {
  using Params = SortParams;
  static constexpr OpInfo info{.name = "arg_sort", .doc = "indices that sort the last axis, stably", .inputs = 1};
  static Types infer(ArgTypes x, const Params&) {
    check_sort("arg_sort", x[0]);
    return {{DType::i32, x[0].shape}};
  }
  static Values expand(Builder&, ArgValues x, const Params& p) { return {order_of(x[0], p.descending)}; }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    sort_reference(x[0], p.descending, [&](int64_t row, const std::vector<int64_t>& order) {
      for (size_t i = 0; i < order.size(); ++i)
        y[0][row * static_cast<int64_t>(order.size()) + static_cast<int64_t>(i)] = static_cast<double>(order[i]);
    });
  }
  static std::vector<Sample> samples() {
    return {{"rows", {{{DType::f32, {2, 3, 7}}}}, make_params(Params{false})},
            {"ties", {{{DType::i32, {4, 9}}, 0, 3}}, make_params(Params{true})}};
  }
};

struct Sort {
  using Params = SortParams;
  static constexpr OpInfo info{.name = "sort", .doc = "the last axis in order, and the indices", .inputs = 1};
  static Types infer(ArgTypes x, const Params&) {
    check_sort("sort", x[0]);
    return {x[0], {DType::i32, x[0].shape}};
  }
  static Values expand(Builder&, ArgValues x, const Params& p) {
    const Value order = arg_sort(x[0], p.descending);
    return {pick(x[0], order), order};
  }
  static std::vector<Sample> samples() {
    return {{"rows", {{{DType::f32, {3, 7}}}}, make_params(Params{true})},
            {"one", {{{DType::f32, {4, 1}}}}, make_params(Params{false})}};
  }
};

struct TopK {
  using Params = TopKParams;
  static constexpr OpInfo info{
      .name = "top_k", .doc = "the k largest of the last axis in order, and their indices", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) {
    check_sort("top_k", x[0]);
    LATHE_USER_CHECK(p.k >= 0 && p.k <= x[0].shape.dim(-1), "top_k: {} of {}", p.k, x[0].shape.dim(-1));
    const Shape s = x[0].shape.with_dim(-1, p.k);
    return {{x[0].dtype, s}, {DType::i32, s}};
  }
  static Values expand(Builder&, ArgValues x, const Params& p) {
    const Value order = slice_axis(arg_sort(x[0], p.largest), x[0].ndim() - 1, 0, p.k);
    return {pick(x[0], order), order};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    const int64_t n = x[0].shape().dim(-1);
    sort_reference(x[0], p.largest, [&](int64_t row, const std::vector<int64_t>& order) {
      for (int64_t i = 0; i < p.k; ++i) {
        y[0][row * p.k + i] = x[0][row * n + order[static_cast<size_t>(i)]];
        y[1][row * p.k + i] = static_cast<double>(order[static_cast<size_t>(i)]);
      }
    });
  }
  static std::vector<Sample> samples() {
    return {{"rows", {{{DType::f32, {3, 7}}}}, make_params(Params{3, true})},
            {"smallest", {{{DType::f32, {5}}}}, make_params(Params{2, false})}};
  }
};

}  // namespace

constinit const OpDef arg_sort_op = make_op<ArgSort>();
constinit const OpDef sort_op = make_op<Sort>();
constinit const OpDef top_k_op = make_op<TopK>();

Value arg_sort(Value x, bool descending) {
  return x.builder().add1(arg_sort_op, std::span(&x, 1), SortParams{descending});
}
Sorted sort(Value x, bool descending) {
  const Values out = x.builder().add(sort_op, std::span(&x, 1), make_params(SortParams{descending}));
  return {out[0], out[1]};
}
Sorted top_k(Value x, int64_t k, bool largest) {
  const Values out = x.builder().add(top_k_op, std::span(&x, 1), make_params(TopKParams{k, largest}));
  return {out[0], out[1]};
}

}  // namespace lathe
