#include "ops/matmul.h"

namespace lathe {

MatmulDims matmul_dims(const Shape& a, const Shape& b, const MatmulParams& p) {
  MatmulDims d{1, a.dim(p.trans_a ? -1 : -2), b.dim(p.trans_b ? -2 : -1), a.dim(p.trans_a ? -2 : -1)};
  for (int i = 0; i < a.ndim() - 2; ++i) d.batch *= a[i];
  return d;
}

namespace {

struct Matmul {
  using Params = MatmulParams;
  static constexpr OpInfo info{.name = "matmul", .doc = "batched matrix product", .inputs = 2, .traits = kProduct};

  static Types infer(ArgTypes x, const Params& p) {
    const Shape &a = x[0].shape, &b = x[1].shape;
    LATHE_USER_CHECK(x[0].dtype == x[1].dtype && is_float(x[0].dtype),
                     "matmul: expected two float tensors of one type, got {} and {}", to_string(x[0]), to_string(x[1]));
    bool fits = a.ndim() >= 2 && a.ndim() == b.ndim();
    for (int i = 0; fits && i < a.ndim() - 2; ++i) fits = a[i] == b[i];
    fits = fits && a.dim(p.trans_a ? -2 : -1) == b.dim(p.trans_b ? -1 : -2);
    LATHE_USER_CHECK(fits, "matmul: {}{} and {}{} do not fit", to_string(a), p.trans_a ? " transposed" : "",
                     to_string(b), p.trans_b ? " transposed" : "");
    const MatmulDims d = matmul_dims(a, b, p);
    return {{x[0].dtype, a.with_dim(-2, d.m).with_dim(-1, d.n)}};
  }

  static Values vjp(const Vjp& v, const Params& p) {
    const Value a = v.x[0], b = v.x[1], dy = v.dy();
    return {p.trans_a ? matmul(b, dy, p.trans_b, true) : matmul(dy, b, false, !p.trans_b),
            p.trans_b ? matmul(dy, a, true, p.trans_a) : matmul(a, dy, !p.trans_a, false)};
  }

  static Cost cost(ArgTypes in, ArgTypes out, const Params& p) {
    Cost c = detail::cost_of_bytes(in, out);
    const MatmulDims d = matmul_dims(in[0].shape, in[1].shape, p);
    c.flops = 2.0 * static_cast<double>(d.batch * d.m) * static_cast<double>(d.n) * static_cast<double>(d.k);
    return c;
  }

  static PlacementRows placements(ArgTypes x, ArgTypes, const Params& p) {
    const int n = x[0].shape.ndim();
    PlacementRows rows;
    add_split_rows(rows, 2, n - 2);
    const auto in = [&](bool turned, bool first) { return split_along(first == turned ? n - 1 : n - 2); };
    rows.push_back({{in(p.trans_a, true), kReplicated}, {split_along(n - 2)}});
    rows.push_back({{kReplicated, in(p.trans_b, false)}, {split_along(n - 1)}});
    rows.push_back({{in(p.trans_a, false), in(p.trans_b, true)}, {kPartial}});
    add_linear_rows(rows, 2);
    return rows;
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const MatmulDims d = matmul_dims(x[0].shape(), x[1].shape(), p);
    for (int64_t s = 0; s < d.batch; ++s)
      for (int64_t i = 0; i < d.m; ++i)
        for (int64_t j = 0; j < d.n; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < d.k; ++k)
            sum += x[0][s * d.m * d.k + (p.trans_a ? k * d.m + i : i * d.k + k)] *
                   x[1][s * d.k * d.n + (p.trans_b ? j * d.k + k : k * d.n + j)];
          y[0][(s * d.m + i) * d.n + j] = sum;
        }
  }

  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    for (bool ta : {false, true})
      for (bool tb : {false, true}) {
        const auto add = [&](const char* label, Ints batch, int64_t m, int64_t n, int64_t k) {
          Ints a = batch, b = batch;
          for (int64_t d : ta ? Ints{k, m} : Ints{m, k}) a.push_back(d);
          for (int64_t d : tb ? Ints{n, k} : Ints{k, n}) b.push_back(d);
          out.push_back({label, {{{DType::f32, Shape(a)}}, {{DType::f32, Shape(b)}}}, make_params(Params{ta, tb})});
        };
        add("small", {}, 5, 7, 3);
        add("edge", {}, 17, 33, 41);
        add("batched", {2, 3}, 4, 5, 6);
        add("vector", {}, 1, 9, 20);
        add("no_k", {}, 3, 4, 0);
      }
    return out;
  }
};

}  // namespace

constinit const OpDef matmul_op = make_op<Matmul>();

Value matmul(Value a, Value b, bool trans_a, bool trans_b) {
  const Value x[] = {a, b};
  return a.builder().add1(matmul_op, x, MatmulParams{trans_a, trans_b});
}

}  // namespace lathe
