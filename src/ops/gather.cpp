#include "ops/gather.h"

#include <algorithm>

namespace lathe {
namespace {

bool is_index(DType t) { return t == DType::i32 || t == DType::i64; }

Shape joined(const Shape& front, const Shape& x, int from) {
  Ints dims = front.to_ints();
  for (int i = from; i < x.ndim(); ++i) dims.push_back(x[i]);
  return Shape(dims);
}

int64_t row_at(const char* op, const RefTensor& indices, int64_t i, int64_t rows) {
  const int64_t row = static_cast<int64_t>(indices[i]);
  LATHE_USER_CHECK(row >= 0 && row < rows, "{}: index {} at position {} is outside of [0, {})", op, row, i, rows);
  return row;
}

struct Gather {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "gather", .doc = "rows of x by index", .inputs = 2, .traits = kExact};

  static Types infer(ArgTypes x, const Params&) {
    LATHE_USER_CHECK(x[0].shape.ndim() >= 1 && is_index(x[1].dtype),
                     "gather: expected a table and i32 or i64 indices, got {} and {}", to_string(x[0]),
                     to_string(x[1]));
    LATHE_USER_CHECK(x[0].shape[0] > 0 || x[1].numel() == 0, "gather: {} rows of a table without rows", x[1].numel());
    return {{x[0].dtype, joined(x[1].shape, x[0].shape, 1)}};
  }

  static Values vjp(const Vjp& v, const Params&) { return {scatter_add(v.x[1], v.dy(), v.x[0].dim(0)), Value()}; }

  static Cost cost(ArgTypes in, ArgTypes out, const Params&) {
    Cost c = detail::cost_of_bytes(out, out);
    c.bytes_read += static_cast<double>(in[1].bytes());
    return c;
  }

  static PlacementRows placements(ArgTypes x, ArgTypes, const Params&) {
    const int indices = x[1].shape.ndim();
    PlacementRows rows{{{kPartial, kReplicated}, {kPartial}}};
    for (int i = 0; i < indices; ++i) rows.push_back({{kReplicated, split_along(i)}, {split_along(i)}});
    for (int i = 1; i < x[0].shape.ndim(); ++i)
      rows.push_back({{split_along(i), kReplicated}, {split_along(indices + i - 1)}});
    return rows;
  }

  static void reference(RefOuts y, RefIns x, const Params&) {
    const int64_t count = x[1].numel(), rows = x[0].shape()[0], width = count ? y[0].numel() / count : 0;
    for (int64_t i = 0; i < count; ++i)
      std::copy_n(x[0].data + row_at("gather", x[1], i, rows) * width, width, y[0].data + i * width);
  }

  static std::vector<Sample> samples() {
    const auto s = [](const char* label, Shape table, TensorType ids) {
      return Sample{
          label, {{{DType::f32, table}}, {ids, 0, static_cast<double>(table[0] - 1)}}, make_params(NoParams{})};
    };
    return {s("tokens", {11, 6}, {DType::i32, {3, 5}}),
            s("flat", {7}, {DType::i64, {9}}),
            s("one", {4, 3, 2}, {DType::i32, {}}),
            s("wide", {5, 130}, {DType::i32, {17}}),
            s("nothing", {3, 4}, {DType::i32, {0}}),
            {"i32", {{{DType::i32, {6, 2}}, -9, 9}, {{DType::i32, {4}}, 0, 5}}, make_params(NoParams{})}};
  }
};

struct ScatterAdd {
  using Params = ScatterAddParams;
  static constexpr OpInfo info{.name = "scatter_add", .doc = "rows added into a table of zeros by index", .inputs = 2};

  static Types infer(ArgTypes x, const Params& p) {
    const Shape &ids = x[0].shape, &updates = x[1].shape;
    LATHE_USER_CHECK(is_index(x[0].dtype) && x[1].dtype != DType::b8,
                     "scatter_add: expected i32 or i64 indices and numbers, got {} and {}", to_string(x[0]),
                     to_string(x[1]));
    bool fits = updates.ndim() >= ids.ndim() && updates.ndim() - ids.ndim() < Shape::kMaxDims;
    for (int i = 0; fits && i < ids.ndim(); ++i) fits = ids[i] == updates[i];
    LATHE_USER_CHECK(fits, "scatter_add: indices {} and updates {} do not fit", to_string(ids), to_string(updates));
    LATHE_USER_CHECK(p.rows > 0 || (p.rows == 0 && ids.numel() == 0), "scatter_add: {} rows", p.rows);
    return {{x[1].dtype, joined({p.rows}, updates, ids.ndim())}};
  }

  static Values vjp(const Vjp& v, const Params&) { return {Value(), gather(v.dy(), v.x[0])}; }

  static Cost cost(ArgTypes in, ArgTypes out, const Params&) {
    Cost c = detail::cost_of_bytes(in, out);
    c.flops = static_cast<double>(in[1].numel());
    return c;
  }

  static PlacementRows placements(ArgTypes x, ArgTypes, const Params&) {
    const int indices = x[0].shape.ndim();
    PlacementRows rows{{{kReplicated, kPartial}, {kPartial}}};
    for (int i = 0; i < indices; ++i) rows.push_back({{split_along(i), split_along(i)}, {kPartial}});
    for (int i = indices; i < x[1].shape.ndim(); ++i)
      rows.push_back({{kReplicated, split_along(i)}, {split_along(i - indices + 1)}});
    return rows;
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    std::fill_n(y[0].data, y[0].numel(), 0.0);
    const int64_t count = x[0].numel(), width = count ? x[1].numel() / count : 0;
    for (int64_t i = 0; i < count; ++i) {
      double* row = y[0].data + row_at("scatter_add", x[0], i, p.rows) * width;
      for (int64_t k = 0; k < width; ++k) row[k] += x[1][i * width + k];
    }
  }

  static std::vector<Sample> samples() {
    const auto s = [](const char* label, TensorType ids, Shape updates, int64_t rows) {
      return Sample{
          label, {{ids, 0, static_cast<double>(rows - 1)}, {{DType::f32, updates}}}, make_params(Params{rows})};
    };
    return {s("tokens", {DType::i32, {3, 5}}, {3, 5, 6}, 11),
            s("flat", {DType::i64, {9}}, {9}, 7),
            s("collide", {DType::i32, {40}}, {40, 3}, 2),
            s("wide", {DType::i32, {17}}, {17, 130}, 5),
            s("one", {DType::i32, {}}, {3, 2}, 4),
            s("nothing", {DType::i32, {0}}, {0, 4}, 3)};
  }
};

}  // namespace

constinit const OpDef gather_op = make_op<Gather>();
constinit const OpDef scatter_add_op = make_op<ScatterAdd>();

Value gather(Value x, Value indices) {
  const Value in[] = {x, indices};
  return x.builder().add1(gather_op, in, NoParams{});
}

Value scatter_add(Value indices, Value updates, int64_t rows) {
  const Value in[] = {indices, updates};
  return updates.builder().add1(scatter_add_op, in, ScatterAddParams{rows});
}

}  // namespace lathe
