// Sessions of steps that are made by hand, as a program outside makes them.
#include "session/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "io/test_util.h"
#include "nn/layers.h"
#include "nn/step/train_set.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "passes/techniques/average.h"

namespace lathe {
namespace {

// A dense net that learns y = x w, with the loss as the mean square.
StepSet line_steps(int64_t batch, int64_t width, const char* optimizer = "adam") {
  StepSet all;
  for (const bool train : {true, false}) {
    Builder b(train ? "train" : "eval");
    Net net(b, train ? Mode::train : Mode::eval);
    const Value x = b.input({DType::f32, {batch, 3}}, InputKind::batch, "x");
    const Value y = b.input({DType::f32, {batch, 1}}, InputKind::batch, "y");
    const Value out = linear(net, "last", relu(linear(net, "first", x, width)), 1);
    const Value loss = reduce_mean(square(out - y), {0, 1});
    if (train) {
      merge(all, train_set(net, loss, {.name = optimizer}));
    } else {
      b.output(loss, OutputKind::metric, "loss");
      b.output(out, OutputKind::result, "out");
      merge(all, finish_set(net));
    }
  }
  return all;
}

void feed_line(Session& s, int64_t batch, int step) {
  std::vector<float> x, y;
  for (int64_t i = 0; i < batch; ++i) {
    for (int k = 0; k < 3; ++k) x.push_back(std::sin(static_cast<float>(7 * step + 3 * i + k)));
    y.push_back(x[x.size() - 3] - 2 * x[x.size() - 2] + 0.5F * x.back());
  }
  s.feed("x", x);
  s.feed("y", y);
  if (step == 0) s.feed("lr", 0.01);
}

TEST(Session, TrainsWithALoopOfItsOwn) {
  Session s(line_steps(16, 32), {.seed = 3});
  double first = 0, last = 0;
  for (int i = 0; i < 200; ++i) {
    feed_line(s, 16, i);
    s.run("train");
    last = s.metric("loss");
    if (i == 0) first = last;
    EXPECT_EQ(s.metric("accepted"), 1);
  }
  EXPECT_LT(last, 0.05 * first);
  s.run("eval");
  EXPECT_NEAR(s.metric("loss"), last, 0.1 * first);
  EXPECT_EQ(s.result("out").size(), 16u);
}

TEST(Session, SavesAndResumesWithTheSameBits) {
  const io::TempDir dir;
  const std::string path = dir / "checkpoints";
  Session a(line_steps(8, 8), {.seed = 1});
  const auto step = [](Session& s, int i) {
    feed_line(s, 8, i);
    s.run("train");
  };
  for (int i = 0; i < 5; ++i) step(a, i);
  a.save(path, 5, {{"note", "five"}});
  for (int i = 5; i < 9; ++i) step(a, i);
  Session b(line_steps(8, 8), {.seed = 2});
  b.feed("lr", 0.01);
  std::map<std::string, std::string> info;
  EXPECT_EQ(b.load(dir / "nothing"), -1);
  EXPECT_EQ(b.load(path, &info), 5);
  EXPECT_EQ(info["note"], "five");
  for (int i = 5; i < 9; ++i) step(b, i);
  for (const StateSpec& s : a.state())
    if (s.type.dtype == DType::f32) {
      EXPECT_EQ(a.read(s.name), b.read(s.name)) << s.name;
    }
}

TEST(Session, ReplansWithItsState) {
  Session s(line_steps(8, 8), {.seed = 1}), same(line_steps(8, 8), {.seed = 1});
  for (int i = 0; i < 3; ++i) {
    feed_line(s, 8, i);
    s.run("train");
  }
  const std::vector<float> weights = s.read("first.weight"), moment = s.read("first.weight.exp_avg");
  // Another batch size: everything is carried over.
  Replanned r = s.replan(line_steps(4, 8), {.seed = 9});
  EXPECT_TRUE(r.fresh.empty() && r.dropped.empty());
  EXPECT_EQ(s.read("first.weight"), weights);
  EXPECT_EQ(s.read("first.weight.exp_avg"), moment);
  EXPECT_THROW(s.run("train"), UserError);  // inputs of before do not count
  feed_line(s, 4, 0);
  s.run("train");
  EXPECT_TRUE(std::isfinite(s.metric("loss")));
  // A technique that adds state, and an optimizer that takes some away.
  r = s.replan(line_steps(4, 8, "sgd"), {.options = PassOptions().set(AverageOptions{0.9}), .seed = 9});
  EXPECT_EQ(r.fresh.size(), 4u);
  EXPECT_EQ(r.dropped.size(), 9u);  // two moments of each, and the count
  EXPECT_EQ(r.carried.size(), 4u);
  // A smaller net: what has another shape begins again, and is named.
  r = s.replan(line_steps(4, 5), {.seed = 9});
  EXPECT_NE(std::ranges::find(r.fresh, "first.weight"), r.fresh.end());
  EXPECT_NE(std::ranges::find(r.carried, "last.bias"), r.carried.end());
  // What cannot be planned leaves the session as it was.
  const std::vector<float> before = s.read("last.bias");
  EXPECT_THROW(s.replan(line_steps(4, 5), {.device = "nothing"}), UserError);
  EXPECT_THROW(s.replan(line_steps(4, 5), {.budget = 64}), UserError);
  EXPECT_EQ(s.read("last.bias"), before);
  feed_line(s, 4, 0);
  s.run("train");
}

// A row that is like another begins as a copy of it, whenever it comes.
TEST(Session, CopiesBeginAsWhatTheyCopy) {
  const SessionOptions averaged{.options = PassOptions().set(AverageOptions{0.9}), .seed = 9};
  Session s(line_steps(4, 4), {.seed = 1}), fresh(line_steps(4, 4), averaged);
  EXPECT_EQ(fresh.read("average.first.weight"), fresh.read("first.weight"));
  for (int i = 0; i < 3; ++i) {
    feed_line(s, 4, i);
    s.run("train");
  }
  s.replan(line_steps(4, 4), averaged);
  EXPECT_EQ(s.read("average.first.weight"), s.read("first.weight"));
  EXPECT_NE(s.read("first.weight"), fresh.read("first.weight"));
  const std::vector<float> average = s.read("average.last.bias");
  s.write("last.bias", std::vector<float>{7});
  s.replan(line_steps(8, 4), averaged);  // it is carried now, not copied again
  EXPECT_EQ(s.read("average.last.bias"), average);
}

TEST(Session, ReplanKeepsFeedsThatFit) {
  Session s(line_steps(4, 4));
  feed_line(s, 4, 0);
  s.replan(line_steps(4, 5), {});
  s.run("train");  // x, y and lr
  const double loss = s.metric("loss");
  s.replan(line_steps(8, 5), {});
  EXPECT_THROW(s.run("train"), UserError);  // x has another size now
  s.replan(line_steps(4, 5), {});
  EXPECT_THROW(s.run("train"), UserError);  // and was given up then
  feed_line(s, 4, 1);                       // without lr
  s.run("train");
  EXPECT_NE(s.metric("loss"), loss);
}

// What fails after the plan, too.
TEST(Session, AFailedReplanLeavesTheSessionAsItWas) {
  Session s(line_steps(4, 4), {.seed = 3});
  feed_line(s, 4, 0);
  s.run("train");
  const std::vector<float> weights = s.read("first.weight");
  StepSet counts = line_steps(4, 4);
  Builder b("count");
  const Value k = b.input({DType::i32, {}}, InputKind::buffer, "k");
  b.update(k, k + k);
  StepSet more;
  more.state.add({"k", {DType::i32, {}}, InputKind::buffer, Init::constant(1), {}});
  more.graphs.push_back(b.finish());
  merge(counts, more);
  EXPECT_THROW(Session(counts, {}), UserError);
  EXPECT_THROW(s.replan(counts, {}), UserError);
  EXPECT_THROW(s.replan(line_steps(4, 4), {.executor = {.slots = 0}}), UserError);
  EXPECT_THROW(s.replan(line_steps(4, 4), {.threads = 1'000'000}), UserError);
  EXPECT_FALSE(s.has("count"));
  EXPECT_EQ(s.read("first.weight"), weights);
  s.run("train");
}

TEST(Session, RefusesWhatItWasNotMadeFor) {
  Session s(line_steps(4, 4));
  const auto error = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const UserError& e) {
      return e.what();
    }
    return "none";
  };
  EXPECT_NE(error([&] { s.run("trian"); }).find("expected one of train, eval; did you mean \"train\"?"),
            std::string::npos);
  EXPECT_NE(error([&] { s.run("train"); }).find("\"x\" (f32[4, 3]) was never fed"), std::string::npos);
  EXPECT_NE(error([&] { s.feed("z", 1.0); }).find("expected one of x, y, lr"), std::string::npos);
  EXPECT_NE(error([&] { s.feed("x", 1.0); }).find("expected f32[4, 3], got one number"), std::string::npos);
  EXPECT_NE(error([&] { s.feed("x", std::vector<float>(5)); }).find("got 20 bytes"), std::string::npos);
  EXPECT_NE(error([&] { s.feed("x", std::vector<int32_t>(12)); }).find("got elements of i32"), std::string::npos);
  EXPECT_NE(error([&] { s.read("optimizer.step"); }).find("expected i32[]"), std::string::npos);
  EXPECT_NE(error([&] { s.write("optimizer.step", std::vector<float>(1)); }).find("expected i32[]"), std::string::npos);
  s.write("optimizer.step", std::vector<int32_t>{5});
  EXPECT_EQ(s.read<int32_t>("optimizer.step"), std::vector<int32_t>{5});
  EXPECT_NE(error([&] { s.write("first.bias", std::vector<float>(3)); }).find("got 3 numbers"), std::string::npos);
}

// Two networks, two optimizers, one set: each with its own count of steps.
TEST(Session, TwoOptimizersKeepTheirCounts) {
  StepSet set;
  for (const char* who : {"a", "b"}) {
    Builder b(who);
    Net net(b, Mode::train);
    const Value w = net.param(std::string(who) + ".w", {4}, Init::constant(1));
    merge(set, train_set(net, sum_all(square(w)), {.name = "adam"}, {.scope = who}));
  }
  Session s(std::move(set));
  s.feed("lr", 0.1);
  for (int i = 0; i < 5; ++i) s.run("a");
  s.run("b");
  // Adam's first step has the length of the rate only if its correction counts one step.
  EXPECT_NEAR(s.read("b.w")[0], 0.9, 1e-5);
}

}  // namespace
}  // namespace lathe
