#include "ops/collective.h"

#include <algorithm>

#include "base/part.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/gather.h"
#include "ops/transpose.h"

namespace lathe {
namespace {

[[noreturn]] void throw_alone(std::string_view op) {
  throw InternalError(fmt::format("{} needs all ranks: interpret_ranks", op));
}

void check_ranks(std::string_view op, int64_t expected, size_t got) {
  LATHE_USER_CHECK(expected == static_cast<int64_t>(got), "{}: expected {} ranks, got {}", op, expected, got);
}

// All ranks must mean the same tensor.
template <class P>
void check_same(std::string_view op, RanksIns x, RanksParams<P> p) {
  check_ranks(op, p[0]->ranks, x.size());
  for (size_t r = 1; r < x.size(); ++r)
    LATHE_USER_CHECK(x[r][0].type == x[0][0].type, "{}: rank 0 has {}, rank {} has {}", op, to_string(x[0][0].type), r,
                     to_string(x[r][0].type));
}

void add_up(RanksIns x, double* sum) {
  const int64_t count = x[0][0].numel();
  std::fill_n(sum, count, 0.0);
  for (const auto& rank : x)
    for (int64_t i = 0; i < count; ++i) sum[i] += rank[0][i];
}

// The elements that a rank has of an axis of `size` elements.
Part part_on(const ShardParams& p, int64_t size, size_t rank) {
  const Part samples = part_of(p.samples, p.ranks, static_cast<int64_t>(rank));
  const int64_t each = size / p.samples;
  return {samples.first * each, samples.last * each};
}

void check_split(std::string_view op, const TensorType& x, const ShardParams& p) {
  LATHE_USER_CHECK(p.axis >= 0 && p.axis < x.shape.ndim() && p.ranks >= 1 && p.samples >= 1 && p.size >= 0,
                   "{}: axis {} of {} among {} ranks, {} samples, size {}", op, p.axis, to_string(x), p.ranks,
                   p.samples, p.size);
}

// f(offset in the whole, offset in the part, elements) for each run of elements that lies in both.
template <class F>
void for_each_run(const Shape& whole, const Part& part, int axis, F&& f) {
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < whole.ndim(); ++i)
    if (i != axis) (i < axis ? outer : inner) *= whole[i];
  for (int64_t i = 0; i < outer; ++i)
    f((i * whole[axis] + part.first) * inner, i * part.size() * inner, part.size() * inner);
}

struct AllReduce {
  using Params = AllReduceParams;
  static constexpr OpInfo info{.name = "all_reduce", .doc = "the sum of x over all ranks", .traits = kOrdered};
  static Types infer(ArgTypes x, const Params& p) {
    LATHE_USER_CHECK(p.ranks >= 1 && x[0].dtype != DType::b8, "all_reduce: {} among {} ranks", to_string(x[0]),
                     p.ranks);
    return {x[0]};
  }
  static Values vjp(const Vjp& v, const Params& p) { return {all_reduce(v.dy(), p.ranks)}; }
  static void reference(RefOuts, RefIns, const Params&) { throw_alone(info.name); }
  static void over_ranks(RanksOuts y, RanksIns x, RanksParams<Params> p) {
    check_same<Params>(info.name, x, p);
    add_up(x, y[0][0].data);
    for (const auto& rank : y) std::copy_n(y[0][0].data, y[0][0].numel(), rank[0].data);
  }
  static std::vector<Sample> samples() { return {}; }
};

struct AllGather {
  using Params = ShardParams;
  static constexpr OpInfo info{.name = "all_gather", .doc = "the whole of what is split", .traits = kOrdered | kExact};
  static Types infer(ArgTypes x, const Params& p) {
    check_split(info.name, x[0], p);
    return {{x[0].dtype, x[0].shape.with_dim(static_cast<int>(p.axis), p.size)}};
  }
  static Values vjp(const Vjp& v, Params p) {
    p.size = v.x[0].dim(static_cast<int>(p.axis));
    return {reduce_scatter(v.dy(), p)};
  }
  static void reference(RefOuts, RefIns, const Params&) { throw_alone(info.name); }
  static void over_ranks(RanksOuts y, RanksIns x, RanksParams<Params> p) {
    check_ranks(info.name, p[0]->ranks, x.size());
    const int axis = static_cast<int>(p[0]->axis);
    for (size_t r = 0; r < x.size(); ++r) {
      const Part part = part_on(*p[0], p[0]->size, r);
      LATHE_USER_CHECK(*p[r] == *p[0] && x[r][0].type.shape.with_dim(axis, p[0]->size) == y[0][0].shape() &&
                           x[r][0].shape()[axis] == part.size(),
                       "all_gather: expected {} along axis {} of rank {}, got {}", part.size(), axis, r,
                       to_string(x[r][0].type));
      for (const auto& rank : y)
        for_each_run(rank[0].shape(), part, axis, [&](int64_t whole, int64_t own, int64_t count) {
          std::copy_n(x[r][0].data + own, count, rank[0].data + whole);
        });
    }
  }
  static std::vector<Sample> samples() { return {}; }
};

struct ReduceScatter {
  using Params = ShardParams;
  static constexpr OpInfo info{
      .name = "reduce_scatter", .doc = "this rank's part of the sum of x over all ranks", .traits = kOrdered};
  static Types infer(ArgTypes x, const Params& p) {
    check_split(info.name, x[0], p);
    return {{x[0].dtype, x[0].shape.with_dim(static_cast<int>(p.axis), p.size)}};
  }
  static Values vjp(const Vjp& v, Params p) {
    p.size = v.x[0].dim(static_cast<int>(p.axis));
    return {all_gather(v.dy(), p)};
  }
  static void reference(RefOuts, RefIns, const Params&) { throw_alone(info.name); }
  static void over_ranks(RanksOuts y, RanksIns x, RanksParams<Params> p) {
    check_same<Params>(info.name, x, p);
    std::vector<double> sum(static_cast<size_t>(x[0][0].numel()));
    add_up(x, sum.data());
    const int axis = static_cast<int>(p[0]->axis);
    for (size_t r = 0; r < y.size(); ++r) {
      const Part part = part_on(*p[0], x[0][0].shape()[axis], r);
      LATHE_USER_CHECK(y[r][0].shape()[axis] == part.size(),
                       "reduce_scatter: expected {} along axis {} of rank {}, got {}", part.size(), axis, r,
                       to_string(y[r][0].type));
      for_each_run(x[0][0].shape(), part, axis, [&](int64_t whole, int64_t own, int64_t count) {
        std::copy_n(sum.data() + whole, count, y[r][0].data + own);
      });
    }
  }
  static std::vector<Sample> samples() { return {}; }
};

struct LocalSlice {
  using Params = ShardParams;
  static constexpr OpInfo info{.name = "local_slice", .doc = "the part of x that belongs to a rank", .inputs = 2};
  // Rows first, ..., first + size - 1 of the axis, where first = rank each + min(rank, more) samples.
  static Values expand(Builder& b, ArgValues x, const Params& p) {
    check_split(info.name, x[0].type(), p);
    LATHE_USER_CHECK(x[1].type() == (TensorType{DType::i32, {}}), "local_slice: expected the rank as i32[], got {}",
                     to_string(x[1].type()));
    const int axis = static_cast<int>(p.axis);
    const auto number = [&](int64_t n) { return constant_like(x[1], static_cast<double>(n)); };
    const Value sample = x[1] * number(p.samples / p.ranks) + minimum(x[1], number(p.samples % p.ranks));
    const Value first = sample * number(x[0].dim(axis) / p.samples);
    const Value rows = iota(b, {DType::i32, {p.size}}, 0) + first;
    Ints perm(static_cast<size_t>(x[0].ndim()));
    for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(i);
    std::swap(perm[0], perm[static_cast<size_t>(axis)]);  // its own inverse
    return {transpose(gather(transpose(x[0], perm), rows), perm)};
  }
  static std::vector<Sample> samples() {
    const auto s = [](const char* label, Shape shape, double rank, Params p) {
      return Sample{label, {{{DType::f32, shape}}, {{DType::i32, {}}, rank, rank}}, make_params(p)};
    };
    return {s("first", {7, 3}, 0, {3, 0, 7, 3}), s("middle", {7, 3}, 1, {3, 0, 7, 2}),
            s("columns", {3, 10}, 1, {2, 1, 5, 4}), s("nothing", {2, 3}, 2, {3, 0, 2, 0})};
  }
};

}  // namespace

constinit const OpDef all_reduce_op = make_op<AllReduce>();
constinit const OpDef all_gather_op = make_op<AllGather>();
constinit const OpDef reduce_scatter_op = make_op<ReduceScatter>();
constinit const OpDef local_slice_op = make_op<LocalSlice>();

Value all_reduce(Value x, int64_t ranks) {
  return x.builder().add1(all_reduce_op, std::span(&x, 1), AllReduceParams{ranks});
}
Value all_gather(Value x, const ShardParams& p) { return x.builder().add1(all_gather_op, std::span(&x, 1), p); }
Value reduce_scatter(Value x, const ShardParams& p) { return x.builder().add1(reduce_scatter_op, std::span(&x, 1), p); }
Value local_slice(Value x, Value rank, const ShardParams& p) {
  const Value in[] = {x, rank};
  return x.builder().add1(local_slice_op, in, p);
}

}  // namespace lathe
