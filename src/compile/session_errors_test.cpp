// Sessions used wrongly: every mistake of a program is a UserError that says what was expected, and changes nothing.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "base/warning.h"
#include "io/test_util.h"
#include "nn/step/train_set.h"
#include "ops/arg_max.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "session/session.h"

namespace lathe {
namespace {

using Floats = std::vector<float>;

template <class F>
std::string user_error(F&& f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "none";
}
#define EXPECT_ERROR(expression, part)                                              \
  do {                                                                              \
    const std::string error = user_error([&] { (void)(expression); });              \
    EXPECT_NE(error.find(part), std::string::npos) << #expression << ": " << error; \
  } while (0)

StepSet square_steps(int64_t n, const char* optimizer) {
  Builder b("train");
  Net net(b, Mode::train);
  const Value w = net.param("w", {n}, Init::normal(1)), v = net.param("v", {3}, Init::normal(1));
  return train_set(net, sum_all(square(w)) + sum_all(square(v)), {.name = optimizer});
}

TEST(SessionErrors, MetricsAndResults) {
  Builder b("g");
  const Value x = b.input({DType::f32, {2, 3}}, InputKind::batch, "x");
  b.output(arg_max(x, -1), OutputKind::result, "best");
  b.output(x * 2.0, OutputKind::result, "twice");
  b.output(cast(sum_all(x), DType::i32), OutputKind::metric, "sum");
  b.output(x, OutputKind::metric, "all");
  Session s(set_of(b.finish()));
  EXPECT_ERROR(s.metric("sum"), "nothing was run yet");
  EXPECT_ERROR(s.result("twice"), "nothing was run yet");
  s.feed("x", Floats{1, 3, 2, 6, 5, 4});
  s.run("g");
  EXPECT_EQ(s.metric("sum"), 21);
  EXPECT_EQ(s.result("twice")[5], 8);
  EXPECT_ERROR(s.metric("nope"), "metric \"nope\": expected one of sum, all");
  EXPECT_ERROR(s.metric("twice"), "metric \"twice\": expected one of sum, all");
  EXPECT_ERROR(s.metric("all"), "expected one number, it is f32[2, 3]");
  EXPECT_ERROR(s.result("nope"), "result \"nope\": expected one of best, twice");
  EXPECT_ERROR(s.result("sum"), "result \"sum\": expected one of best, twice");
  EXPECT_ERROR(s.result("best"), "expected i32[2], got elements of f32");
  EXPECT_EQ(s.result<int32_t>("best"), (std::vector<int32_t>{1, 0}));
}

TEST(SessionErrors, Options) {
  const auto make = [](const SessionOptions& o) { Session s(square_steps(2, "sgd"), o); };
  EXPECT_ERROR(make({.executor = {.slots = 0}}), "executor.slots: expected at least 1, got 0");
  EXPECT_ERROR(make({.executor = {.ahead = 0}}), "executor.ahead: expected at least 1, got 0");
  EXPECT_ERROR(make({.threads = 1'000'000}), "threads: expected 0 to 1024, got 1000000");
  EXPECT_ERROR(make({.threads = -1}), "threads: expected 0 to 1024, got -1");
}

TEST(SessionErrors, Saving) {
  const io::TempDir dir;
  Session s(square_steps(2, "sgd")), none(square_steps(2, "sgd"), {.executor = {.slots = 1, .snapshot = false}});
  EXPECT_ERROR(s.save(dir / "a", -5), "step: expected 0 to 999999999999999999, got -5");
  EXPECT_ERROR(none.save(dir / "a", 1), "executor.snapshot");
  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
  Session empty(square_steps(0, "sgd"));
  empty.save(dir / "b", 1);
  EXPECT_EQ(empty.load(dir / "b"), 1);
}

// A program that saves the same step again means what it has now.
TEST(SessionErrors, SavingAStepAgainReplacesIt) {
  const io::TempDir dir;
  Session s(square_steps(2, "adam"), {.seed = 3});
  s.save(dir / "a", 2);
  s.write("w", Floats{7, 8});
  s.save(dir / "a", 2);
  s.initialize(9);
  EXPECT_EQ(s.load(dir / "a"), 2);
  EXPECT_EQ(s.read("w"), (Floats{7, 8}));
  // What a killed save left goes.
  std::filesystem::create_directory(dir / "a/.tmp-step-000000000003-x");
  s.save(dir / "a", 4);
  EXPECT_FALSE(std::filesystem::exists(dir / "a/.tmp-step-000000000003-x"));
}

TEST(SessionErrors, NumbersThatAnInputCannotHold) {
  Builder b("one"), c("two");
  b.output(b.input({DType::u8, {1}}, InputKind::batch, "x"), OutputKind::result, "y");
  c.output(c.input({DType::u8, {2}}, InputKind::batch, "x"), OutputKind::result, "y");
  StepSet set;
  set.graphs.push_back(b.finish());
  set.graphs.push_back(c.finish());
  Session s(std::move(set));
  for (double wrong : {-1.0, 256.0, 0.5, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_ERROR(s.feed("x", wrong), "input \"x\": expected u8[1], got ");
  s.feed("x", 255);  // the other graph takes two
  s.run("one");
  EXPECT_EQ(s.result<uint8_t>("y"), std::vector<uint8_t>{255});
  EXPECT_ERROR(Session(square_steps(2, "sgd"), {}).feed("lr", std::vector<double>{1}), "expected f32");
  OptimizerConfig o{.name = "adam", .lr = std::numeric_limits<double>::quiet_NaN()};
  Builder d("train");
  EXPECT_ERROR(Optimizer(d, o, {}), "optimizer.lr: expected a finite number from 0, got nan");
  o.lr = 0.1;
  o.beta2 = -1;
  EXPECT_ERROR(Optimizer(d, o, {}), "optimizer.beta2: expected a finite number from 0, got -1");
}

TEST(SessionErrors, LoadingIsAllOrNothing) {
  const io::TempDir dir;
  Session(square_steps(2, "adam"), {.seed = 1}).save(dir / "a", 1);
  Session other(square_steps(2, "rmsprop"), {.seed = 2}), longer(square_steps(4, "rmsprop"), {.seed = 2});
  const Floats w = other.read("w"), v = longer.read("v");
  EXPECT_ERROR(other.load(dir / "a"), "\"w.square_avg\" is missing");
  EXPECT_EQ(other.read("w"), w);
  // Every file's problems in one message, and no word of recipes.
  const std::string error = user_error([&] { longer.load(dir / "a"); });
  EXPECT_NE(error.find("model.safetensors: does not fit: \"w\": expected f32[4], got F32[2]"), std::string::npos)
      << error;
  EXPECT_NE(error.find("optimizer.safetensors: does not fit"), std::string::npos) << error;
  EXPECT_NE(error.find("\"v.square_avg\" is missing"), std::string::npos) << error;
  EXPECT_EQ(error.find("recipe"), std::string::npos) << error;
  EXPECT_EQ(longer.read("v"), v);
}

TEST(SessionErrors, DamagedCheckpointsAreNotSilent) {
  const io::TempDir dir;
  const auto damage = [](const std::string& path) {
    std::ofstream(path + "/model.safetensors", std::ios::trunc) << "x";
  };
  Session s(square_steps(2, "sgd"));
  s.save(dir / "a", 1);
  damage(s.save(dir / "a", 2));
  std::string warning;
  set_warning_sink([&](const std::string& text) { warning += text; });
  EXPECT_EQ(s.load(dir / "a"), 1);
  EXPECT_NE(warning.find("step-000000002 is damaged and was skipped"), std::string::npos) << warning;
  damage(s.save(dir / "b", 3));
  EXPECT_ERROR(s.load(dir / "b"), "step-000000003 is damaged");
  set_warning_sink({});
}

// The hashes say that it was saved so.
TEST(SessionErrors, StateMayBeInfinite) {
  const io::TempDir dir;
  Builder b("g");
  const Value least = b.input({DType::f32, {}}, InputKind::buffer, "least");
  b.update(least, minimum(least, b.input({DType::f32, {}}, InputKind::step, "x")));
  StepSet set;
  set.state.add(
      {"least", {DType::f32, {}}, InputKind::buffer, Init::constant(std::numeric_limits<double>::infinity()), {}});
  set.graphs.push_back(b.finish());
  Session s(set);
  s.save(dir / "a", 1);
  s.write("least", Floats{1});
  EXPECT_EQ(s.load(dir / "a"), 1);
  EXPECT_EQ(s.read("least")[0], std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace lathe
