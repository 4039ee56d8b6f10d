#include "run/run_graph.h"

#include <gtest/gtest.h>

#include "ir/builder.h"
#include "ops/elementwise.h"

namespace lathe {
namespace {

const TensorType kPair{DType::f32, {2}};

Graph doubled() {
  Builder b("g");
  b.output(b.input(kPair, InputKind::batch, "x") * 2.0, OutputKind::result, "y");
  return b.finish();
}

TEST(RunGraph, InputsAreTheProgramsOwnOrRefused) {
  const std::vector<std::vector<HostTensor>> wrong = {
      {},
      {{kPair, {1, 2}}, {kPair, {1, 2}}},
      {{kPair, {1}}},
      {{kPair, std::vector<double>(100000)}},
      {{{DType::i32, {2}}, {1, 2}}},
      {{{DType::f32, {300}}, std::vector<double>(300)}},
  };
  for (const char* name : {"ref", "cpu"}) {
    const Backend& backend = find_backend(name);
    EXPECT_EQ(run_graph(backend, {.threads = 1}, doubled(), {{kPair, {1, 2}}})[0].data, (std::vector<double>{2, 4}));
    for (const auto& inputs : wrong) EXPECT_THROW(run_graph(backend, {.threads = 1}, doubled(), inputs), UserError);
    try {
      run_graph(backend, {.threads = 1}, doubled(), wrong[5]);
    } catch (const UserError& e) {
      EXPECT_STREQ(e.what(), "program \"g\", input \"x\": expected f32[2], got f32[300] with 300 elements");
    }
  }
}

TEST(RunGraph, BytesAreThoseOfTheType) {
  EXPECT_THROW(to_bytes({kPair, {1, 2, 3}}), UserError);
  EXPECT_THROW(to_bytes({kPair, {1}}), UserError);
  EXPECT_THROW(from_bytes(kPair, std::vector<std::byte>(7)), UserError);
  EXPECT_EQ(from_bytes(kPair, to_bytes({kPair, {1, 2}})).data, (std::vector<double>{1, 2}));
}

struct Endless {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "endless", .doc = ""};
  static Types infer(ArgTypes x, const Params&) { return {x[0]}; }
  static Values expand(Builder& b, ArgValues x, const Params&);
  static std::vector<Sample> samples() { return {}; }
};
constexpr OpDef endless_op = make_op<Endless>();
Values Endless::expand(Builder& b, ArgValues x, const Params&) { return {b.add1(endless_op, x, NoParams{})}; }

// Without passes the plan expands, and `ref` computes what follows from the expansion.
TEST(RunGraph, ExpansionsWithoutEndAreRefused) {
  Builder b("g");
  const Value x = b.input(kPair, InputKind::batch, "x");
  b.output(b.add1(endless_op, std::span(&x, 1), NoParams{}), OutputKind::result, "y");
  const Graph g = b.finish();
  for (const char* name : {"ref", "cpu"})
    EXPECT_THROW(run_graph(find_backend(name), {.threads = 1}, g, {{kPair, {1, 2}}}), UserError);
}

TEST(BoundProgram, NeedsTheArenaAllocatedOnce) {
  for (const char* name : {"ref", "cpu"}) {
    const Backend& backend = find_backend(name);
    const std::unique_ptr<Device> device = backend.open({.threads = 1});
    const ProgramSet set = plan({doubled()}, device->target(), backend.kernels());
    EXPECT_THROW(BoundProgram(*device, set.programs[0]).run({{kPair, {1, 2}}}), UserError);
    device->allocate(set.segments);
    EXPECT_NO_THROW(BoundProgram(*device, set.programs[0]).run({{kPair, {1, 2}}}));
    EXPECT_THROW(device->allocate(set.segments), UserError);
  }
}

}  // namespace
}  // namespace lathe
