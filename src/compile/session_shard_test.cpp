// Sessions of ranks that have a part of the state each.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/part.h"
#include "compile/rank_sessions.h"
#include "io/test_util.h"
#include "nn/layers.h"
#include "nn/step/train_set.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "passes/partition/shard_state.h"
#include "passes/techniques/accumulate.h"
#include "passes/techniques/average.h"
#include "passes/techniques/clip_norm.h"
#include "passes/techniques/gate.h"
#include "session/session.h"

namespace lathe::session_shard_test {
namespace {

constexpr int64_t kSamples = kRankSamples, kWide = kRankWide;

// Three layers of sizes that the ranks divide, or do not. No batch norm: the bias before it has a gradient of rounding
// alone, of which Adam makes whole steps.
StepSet steps() {
  StepSet all;
  for (const bool train : {true, false}) {
    Builder b(train ? "train" : "eval");
    Net net(b, train ? Mode::train : Mode::eval);
    const Value x = b.input({DType::f32, {kSamples, kWide}}, InputKind::batch, "x");
    const Value y = b.input({DType::f32, {kSamples, 1}}, InputKind::batch, "y");
    const Value h = tanh(linear(net, "first", x, 16));
    const Value out = linear(net, "last", tanh(linear(net, "middle", h, 9)), 1);
    const Value loss = reduce_mean(square(out - y), {0, 1});
    if (train) {
      merge(all, train_set(net, loss, {.name = "adam"}));
    } else {
      b.output(loss, OutputKind::metric, "loss");
      b.output(out, OutputKind::result, "out");
      merge(all, finish_set(net));
    }
  }
  return all;
}

SessionOptions session_options(comm::Group* group, const PassOptions& options) {
  SessionOptions o;
  o.threads = 1;
  o.seed = 3;
  o.options = options;
  o.group = group;
  return o;
}

void feed(Session& s, comm::Group* group, int step) {
  const Part own = group ? part_of(kSamples, group->size(), group->rank()) : Part{0, kSamples};
  feed_samples(s, own, step);
  s.feed("lr", 0.01);
  if (s.executor().has_input("average")) s.feed("average", 0.1);
}

using State = std::map<std::string, std::vector<float>>;

State state_of(Session& s) {
  State out;
  for (const StateSpec& row : s.state())
    if (row.type.dtype == DType::f32 && row.kind != InputKind::gradient) out[row.name] = s.read(row.name);
  return out;
}

struct Trained {
  std::vector<double> losses;
  State state;
  std::vector<float> out;
};

Trained train_rank(comm::Group* group, const PassOptions& options) {
  Session s(steps(), session_options(group, options));
  Trained trained;
  for (int step = 0; step < 6; ++step) {
    feed(s, group, step);
    if (s.has("train")) {
      s.run("train");
    } else {
      s.run("accumulate");
      s.run("accumulate");
    }
    trained.losses.push_back(s.metric("loss"));
    if (s.has("update")) s.run("update");
  }
  s.run("eval");
  trained.losses.push_back(s.metric("loss"));
  trained.state = state_of(s);
  trained.out = s.result("out");
  return trained;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << what << " " << i;
}

void expect_same_as_one(PassOptions options) {
  const Trained one = train_rank(nullptr, options);
  for (int64_t level = 1; level <= 3; ++level) {
    options.set(ShardOptions{level, 1});
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(fmt::format("level {}, {} ranks", level, ranks));
      const auto all = on_ranks(ranks, [&](comm::Group* group) { return train_rank(group, options); });
      for (const Trained& rank : all) {
        EXPECT_EQ(rank.losses, all[0].losses);  // the same bits on all ranks
        EXPECT_EQ(rank.state, all[0].state);
        EXPECT_EQ(rank.out, all[0].out);
      }
      for (size_t i = 0; i < one.losses.size(); ++i)
        EXPECT_NEAR(all[0].losses[i], one.losses[i], 1e-5 * std::abs(one.losses[i]) + 1e-6) << "step " << i;
      for (const auto& [name, values] : one.state) expect_near(all[0].state.at(name), values, name);
      expect_near(all[0].out, one.out, "out");
    }
  }
}

TEST(SessionShard, TrainsAsOneDoes) { expect_same_as_one({}); }

TEST(SessionShard, WithTechniques) {
  PassOptions options;
  expect_same_as_one(options.set(ClipNormOptions{0.1}).set(AverageOptions{0.9}).set(AccumulateOptions{2}));
}

// Ranks together have the values that one has; what is written everywhere is read everywhere.
TEST(SessionShard, FirstValuesAreThoseOfOne) {
  Session one(steps(), session_options(nullptr, PassOptions().set(AverageOptions{0.9})));
  const State expected = state_of(one);
  for (int64_t level = 0; level <= 3; ++level) {
    const auto options = PassOptions().set(AverageOptions{0.9}).set(ShardOptions{level, 1});
    const auto all = on_ranks(3, [&](comm::Group* group) {
      Session s(steps(), session_options(group, options));
      return state_of(s);
    });
    for (const State& rank : all) EXPECT_EQ(rank, expected) << "level " << level;
  }
  const std::vector<float> values(16 * 9, 0.25F);
  const auto read = on_ranks(2, [&](comm::Group* group) {
    Session s(steps(), session_options(group, PassOptions().set(ShardOptions{3, 1})));
    s.write("middle.weight", values);
    return s.read("middle.weight");
  });
  for (const std::vector<float>& rank : read) EXPECT_EQ(rank, values);
}

std::map<std::string, std::string> files_in(const std::string& dir) {
  std::map<std::string, std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    std::ifstream file(entry.path(), std::ios::binary);
    if (entry.path().extension() == ".safetensors")
      out[entry.path().filename().string()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return out;
}

// Files do not say how many ranks wrote them, and any number reads them.
TEST(SessionShard, CheckpointsAreThoseOfOne) {
  const io::TempDir dir;
  const auto average = PassOptions().set(AverageOptions{0.9});
  Session one(steps(), session_options(nullptr, average));
  feed(one, nullptr, 0);
  one.run("train");
  const std::string path = one.save(dir.path() + "/one", 1);
  const State expected = state_of(one);
  for (int64_t level = 1; level <= 3; ++level) {
    SCOPED_TRACE(level);
    const auto options = PassOptions(average).set(ShardOptions{level, 1});
    const std::string to = fmt::format("{}/{}", dir.path(), level);
    const auto all = on_ranks(3, [&](comm::Group* group) {
      Session s(steps(), session_options(group, options));
      EXPECT_EQ(s.load(dir.path() + "/one"), 1);
      State state = state_of(s);
      EXPECT_EQ(s.save(to, 1), to + "/step-000000001");
      return state;
    });
    for (const State& rank : all) EXPECT_EQ(rank, expected);
    EXPECT_EQ(files_in(to + "/step-000000001"), files_in(path));
  }
}

// Another level, and other steps: values are kept.
TEST(SessionShard, StateIsCarriedFromLevelToLevel) {
  const auto all = on_ranks(2, [&](comm::Group* group) {
    Session s(steps(), session_options(group, PassOptions().set(ShardOptions{1, 1})));
    feed(s, group, 0);
    s.run("train");
    const State before = state_of(s);
    const Replanned r =
        s.replan(steps(), session_options(group, PassOptions().set(ShardOptions{3, 1}).set(AverageOptions{0.9})));
    EXPECT_FALSE(r.fresh.empty());
    State now = state_of(s);
    EXPECT_EQ(now.at("average.middle.weight"), now.at("middle.weight"));
    std::erase_if(now, [&](const auto& row) { return !before.contains(row.first); });
    return std::pair(before, now);
  });
  for (const auto& [before, now] : all) EXPECT_EQ(before, now);
}

}  // namespace
}  // namespace lathe::session_shard_test
