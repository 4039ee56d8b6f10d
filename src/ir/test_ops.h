// A handful of ops and a graph for the tests of the IR, which knows no real op.
#pragma once

#include <algorithm>

#include "ir/builder.h"

namespace lathe::ir_test {

inline std::vector<Sample> no_samples() { return {}; }

struct Add {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "add", .doc = "a + b", .inputs = 2};
  static Types infer(ArgTypes x, const Params&) {
    LATHE_USER_CHECK(x[0] == x[1], "add: {} and {} differ", to_string(x[0]), to_string(x[1]));
    return {x[0]};
  }
  static void reference(RefOuts y, RefIns x, const Params&) {
    for (int64_t i = 0; i < y[0].numel(); ++i) y[0][i] = x[0][i] + x[1][i];
  }
  static std::vector<Sample> samples() { return no_samples(); }
};

// One field of every kind.
struct TagParams {
  bool flag = false;
  int64_t count = 0;
  double scale = 1;
  std::string label{};
  DType dtype = DType::f32;
  Ints list{};
  GraphPtr body{};
  template <class F>
  static void fields(F&& f) {
    f("flag", &TagParams::flag);
    f("count", &TagParams::count);
    f("scale", &TagParams::scale);
    f("label", &TagParams::label);
    f("dtype", &TagParams::dtype);
    f("list", &TagParams::list);
    f("body", &TagParams::body);
  }
};

struct Tag {
  using Params = TagParams;
  static constexpr OpInfo info{.name = "tag", .doc = "x", .inputs = 1};
  static Types infer(ArgTypes x, const Params&) { return {x[0]}; }
  static void reference(RefOuts y, RefIns x, const Params&) {
    for (int64_t i = 0; i < y[0].numel(); ++i) y[0][i] = x[0][i];
  }
  static std::vector<Sample> samples() { return no_samples(); }
};

struct Split {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "split", .doc = "x and -x", .inputs = 1};
  static Types infer(ArgTypes x, const Params&) { return {x[0], x[0]}; }
  static void reference(RefOuts y, RefIns x, const Params&) {
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      y[0][i] = x[0][i];
      y[1][i] = -x[0][i];
    }
  }
  static std::vector<Sample> samples() { return no_samples(); }
};

inline constinit const OpDef add_op = make_op<Add>();
inline constinit const OpDef tag_op = make_op<Tag>();
inline constinit const OpDef split_op = make_op<Split>();

inline Value add(Value a, Value b) {
  const Value x[] = {a, b};
  return a.builder().add1(add_op, x, NoParams{});
}
inline Value tag(Value x, TagParams p) { return x.builder().add1(tag_op, std::span(&x, 1), std::move(p)); }

// Only what it expands to is written: type rule, cost and reference follow.
struct Twice {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "twice", .doc = "x + x", .inputs = 1};
  static Values expand(Builder&, ArgValues x, const Params&) { return {add(x[0], x[0])}; }
  static std::vector<Sample> samples() { return no_samples(); }
};

struct Many {  // any number of inputs
  using Params = NoParams;
  static constexpr OpInfo info{.name = "many", .doc = "the first of many", .inputs = -1};
  static Types infer(ArgTypes x, const Params&) { return {x[0]}; }
  static void reference(RefOuts y, RefIns x, const Params&) { std::copy_n(x[0].data, x[0].numel(), y[0].data); }
  static std::vector<Sample> samples() { return no_samples(); }
};

struct Grad {  // verify knows it by name
  using Params = NoParams;
  static constexpr OpInfo info{.name = "grad", .doc = "", .inputs = -1};
  static Types infer(ArgTypes x, const Params&) { return {x.begin() + 1, x.end()}; }
  static void reference(RefOuts, RefIns, const Params&) {}
  static std::vector<Sample> samples() { return no_samples(); }
};

inline constinit const OpDef twice_op = make_op<Twice>();
inline constinit const OpDef many_op = make_op<Many>();
inline constinit const OpDef grad_op = make_op<Grad>();

inline const OpRegistry& ops() {
  static const OpRegistry table({&twice_op, &add_op, &tag_op, &split_op, &many_op, &grad_op});
  return table;
}

inline const TensorType kVec{DType::f32, {3}};

inline Graph small_graph() {
  Builder b("small");
  const Value w = b.input(kVec, InputKind::param, "w"), x = b.input(kVec, InputKind::batch, "x");
  Value y;
  {
    Origin layer(b, "layer1");
    Origin inner(b, "fc");
    y = add(x, w);
  }
  const Values halves = b.add(split_op, std::span(&y, 1), make_params(NoParams{}));
  b.output(halves[1], OutputKind::result, "y");
  b.update(w, add(w, halves[0]));
  return b.finish();
}

}  // namespace lathe::ir_test
