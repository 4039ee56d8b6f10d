#include "ops/collective.h"

#include <algorithm>

#include "base/part.h"
#include "base/traffic.h"
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

// All ranks must mean the same tensors.
template <class P>
void check_same(std::string_view op, RanksIns x, RanksParams<P> p) {
  check_ranks(op, p[0]->ranks, x.size());
  for (size_t r = 1; r < x.size(); ++r) {
    LATHE_USER_CHECK(x[r].size() == x[0].size(), "{}: rank 0 has {} tensors, rank {} has {}", op, x[0].size(), r,
                     x[r].size());
    for (size_t i = 0; i < x[r].size(); ++i)
      LATHE_USER_CHECK(x[r][i].type == x[0][i].type, "{}: rank 0 has {}, rank {} has {}", op, to_string(x[0][i].type),
                       r, to_string(x[r][i].type));
  }
}

// Of one of the inputs.
void add_up(RanksIns x, size_t input, double* sum) {
  const int64_t count = x[0][input].numel();
  std::fill_n(sum, count, 0.0);
  for (const auto& rank : x)
    for (int64_t i = 0; i < count; ++i) sum[i] += rank[input][i];
}

int64_t bytes_of(ArgTypes types) {
  int64_t bytes = 0;
  for (const TensorType& t : types) bytes += t.bytes();
  return bytes;
}

Cost cost_of(ArgTypes in, ArgTypes out, const Traffic& traffic) {
  Cost c = detail::cost_of_bytes(in, out);
  c.bytes_sent = traffic.bytes;
  c.turns = traffic.turns;
  return c;
}

// Additions of each rank.
double ring_sums(ArgTypes in, int64_t ranks) {
  double numel = 0;
  for (const TensorType& t : in) numel += static_cast<double>(t.numel());
  return numel * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

// The elements that a rank has of an axis of `size` elements.
Part part_on(const ShardParams& p, int64_t size, size_t rank) {
  return lathe::part_on(size, p.units, p.ranks, static_cast<int64_t>(rank));
}

void check_split(std::string_view op, const TensorType& x, const ShardParams& p) {
  LATHE_USER_CHECK(p.axis >= 0 && p.axis < x.shape.ndim() && p.ranks >= 1 && p.units >= 1 && p.size >= 0,
                   "{}: axis {} of {} among {} ranks, {} units, size {}", op, p.axis, to_string(x), p.ranks, p.units,
                   p.size);
}

struct AllReduce {
  using Params = AllReduceParams;
  static constexpr OpInfo info{.name = "all_reduce",
                               .doc = "the sum of x over all ranks, for each of several x",
                               .inputs = -1,
                               .traits = kOrdered | kInPlace};
  static Types infer(ArgTypes x, const Params& p) {
    for (const TensorType& t : x)
      LATHE_USER_CHECK(p.ranks >= 1 && t.dtype != DType::b8 && t.dtype == x[0].dtype,
                       "all_reduce: {} beside {} among {} ranks", to_string(t), to_string(x[0]), p.ranks);
    return {x.begin(), x.end()};
  }
  static Values vjp(const Vjp& v, const Params& p) {
    Values dy;
    for (size_t i = 0; i < v.y.size(); ++i) dy.push_back(v.dy(static_cast<int>(i)));
    return all_reduce(dy, p.ranks);
  }
  static Cost cost(ArgTypes in, ArgTypes out, const Params& p) {
    const int64_t bytes = bytes_of(in);
    Cost c = cost_of(in, out, sum_traffic(bytes, p.ranks));
    // By doubling, all that is sent is added up.
    c.flops = bytes > kSmallSum ? ring_sums(in, p.ranks) : c.bytes_sent / static_cast<double>(size_of(in[0].dtype));
    return c;
  }
  static void reference(RefOuts, RefIns, const Params&) { throw_alone(info.name); }
  static void over_ranks(RanksOuts y, RanksIns x, RanksParams<Params> p) {
    check_same<Params>(info.name, x, p);
    for (size_t i = 0; i < y[0].size(); ++i) {
      add_up(x, i, y[0][i].data);
      for (const auto& rank : y) std::copy_n(y[0][i].data, y[0][i].numel(), rank[i].data);
    }
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
  static Cost cost(ArgTypes in, ArgTypes out, const Params& p) {
    return cost_of(in, out, ring_traffic(bytes_of(out), p.ranks, 1));
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
        for_each_run(rank[0].shape(), axis, part, [&](int64_t whole, int64_t own, int64_t count) {
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
  static Cost cost(ArgTypes in, ArgTypes out, const Params& p) {
    Cost c = cost_of(in, out, ring_traffic(bytes_of(in), p.ranks, 1));
    c.flops = ring_sums(in, p.ranks);
    return c;
  }
  static void reference(RefOuts, RefIns, const Params&) { throw_alone(info.name); }
  static void over_ranks(RanksOuts y, RanksIns x, RanksParams<Params> p) {
    check_same<Params>(info.name, x, p);
    std::vector<double> sum(static_cast<size_t>(x[0][0].numel()));
    add_up(x, 0, sum.data());
    const int axis = static_cast<int>(p[0]->axis);
    for (size_t r = 0; r < y.size(); ++r) {
      const Part part = part_on(*p[0], x[0][0].shape()[axis], r);
      LATHE_USER_CHECK(y[r][0].shape()[axis] == part.size(),
                       "reduce_scatter: expected {} along axis {} of rank {}, got {}", part.size(), axis, r,
                       to_string(y[r][0].type));
      for_each_run(x[0][0].shape(), axis, part, [&](int64_t whole, int64_t own, int64_t count) {
        std::copy_n(sum.data() + whole, count, y[r][0].data + own);
      });
    }
  }
  static std::vector<Sample> samples() { return {}; }
};

struct LocalSlice {
  using Params = ShardParams;
  static constexpr OpInfo info{.name = "local_slice", .doc = "the part of x that belongs to a rank", .inputs = 2};
  // Rows first, ..., first + size - 1 of the axis, where first = rank each + min(rank, more) units.
  static Values expand(Builder& b, ArgValues x, const Params& p) {
    check_split(info.name, x[0].type(), p);
    LATHE_USER_CHECK(x[1].type() == (TensorType{DType::i32, {}}), "local_slice: expected the rank as i32[], got {}",
                     to_string(x[1].type()));
    const int axis = static_cast<int>(p.axis);
    const auto number = [&](int64_t n) { return constant_like(x[1], static_cast<double>(n)); };
    const Value unit = x[1] * number(p.units / p.ranks) + minimum(x[1], number(p.units % p.ranks));
    const Value first = unit * number(x[0].dim(axis) / p.units);
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
Values all_reduce(ArgValues x, int64_t ranks) {
  LATHE_USER_CHECK(!x.empty(), "all_reduce: of nothing");
  return x[0].builder().add(all_reduce_op, x, make_params(AllReduceParams{ranks}));
}
Value all_gather(Value x, const ShardParams& p) { return x.builder().add1(all_gather_op, std::span(&x, 1), p); }
Value reduce_scatter(Value x, const ShardParams& p) { return x.builder().add1(reduce_scatter_op, std::span(&x, 1), p); }
Value local_slice(Value x, Value rank, const ShardParams& p) {
  const Value in[] = {x, rank};
  return x.builder().add1(local_slice_op, in, p);
}

}  // namespace lathe
