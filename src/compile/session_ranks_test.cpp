// Sessions of several ranks, each in a thread of its own: together they train as one does.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/part.h"
#include "compile/rank_sessions.h"
#include "nn/layers.h"
#include "nn/step/train_set.h"
#include "ops/collective.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "passes/partition/blocks.h"
#include "passes/techniques/clip_norm.h"
#include "session/session.h"

namespace lathe {
namespace {

constexpr int64_t kSamples = kRankSamples, kWide = kRankWide;

StepSet steps() { return two_layers({.name = "sgd", .momentum = 0.9}); }

struct Trained {
  std::vector<double> losses;
  std::vector<float> weights, out;
};

Trained train_rank(comm::Group* group, const PassOptions& options) {
  const int64_t blocks = options.get<SameBitsOptions>().used();
  const Part own = group ? part_of(kSamples, blocks, group->size(), group->rank()) : Part{0, kSamples};
  SessionOptions o;
  o.threads = 1;
  o.seed = 3;
  o.options = options;
  o.group = group;
  Session s(steps(), o);
  Trained trained;
  for (int step = 0; step < 8; ++step) {
    std::vector<float> x, y;
    for (int64_t i = own.first; i < own.last; ++i) {
      for (int64_t k = 0; k < kWide; ++k) x.push_back(std::sin(static_cast<float>(7 * step + 3 * i + k)));
      y.push_back(x[x.size() - 3] - 2 * x[x.size() - 2] + 0.5F * x.back());
    }
    s.feed("x", x);
    s.feed("y", y);
    if (step == 0) s.feed("lr", 0.05);
    s.run("train");
    trained.losses.push_back(s.metric("loss"));
  }
  s.run("eval");
  trained.losses.push_back(s.metric("loss"));
  trained.weights = s.read("first.weight");
  trained.out = s.result("out");
  return trained;
}

std::vector<Trained> train_ranks(int ranks, const PassOptions& options) {
  return on_ranks(ranks, [&](comm::Group* group) { return train_rank(group, options); });
}

void expect_same_as_one(const PassOptions& options) {
  const Trained one = train_rank(nullptr, options);
  for (const int ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(ranks);
    const std::vector<Trained> all = train_ranks(ranks, options);
    for (const Trained& rank : all) {
      EXPECT_EQ(rank.weights, all[0].weights);  // the same bits on all ranks
      EXPECT_EQ(rank.losses, all[0].losses);
    }
    ASSERT_EQ(all[0].losses.size(), one.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_NEAR(all[0].losses[i], one.losses[i], 1e-5 * std::abs(one.losses[i]) + 1e-6) << "step " << i;
    ASSERT_EQ(all[0].weights.size(), one.weights.size());
    for (size_t i = 0; i < one.weights.size(); ++i) EXPECT_NEAR(all[0].weights[i], one.weights[i], 1e-5) << i;
    ASSERT_EQ(all[0].out.size(), static_cast<size_t>(kSamples));  // of the whole batch, everywhere
    for (size_t i = 0; i < one.out.size(); ++i) EXPECT_NEAR(all[0].out[i], one.out[i], 1e-4) << i;
  }
}

TEST(SessionRanks, TrainAsOneDoes) { expect_same_as_one({}); }

TEST(SessionRanks, ClippingIsThatOfTheWholeGradient) {
  PassOptions options;
  options.set(ClipNormOptions{0.1});
  expect_same_as_one(options);
}

// Not only near: the same.
TEST(SessionRanks, SameBitsOnAnyNumberOfRanks) {
  PassOptions options;
  options.set(SameBitsOptions{true, 8});
  options.set(ClipNormOptions{0.1});
  const Trained one = train_rank(nullptr, options);
  for (const int ranks : {2, 3, 4, 5, 8})
    for (const Trained& rank : train_ranks(ranks, options)) {
      EXPECT_EQ(rank.weights, one.weights) << ranks;
      EXPECT_EQ(rank.losses, one.losses) << ranks;
      EXPECT_EQ(rank.out, one.out) << ranks;
    }
  // It is a mode of its own: nothing says that the other one has these bits.
  options.set(SameBitsOptions{});
  const Trained other = train_rank(nullptr, options);
  for (size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(other.losses[i], one.losses[i], 1e-5);
}

TEST(SessionRanks, MoreRanksThanSamples) {
  const Trained one = train_rank(nullptr, {});
  const std::vector<Trained> all = train_ranks(12, {});
  EXPECT_NEAR(all[11].losses.back(), one.losses.back(), 1e-5);
  EXPECT_EQ(all[11].weights, all[0].weights);
}

// Gathers and sums of parts along each axis, uneven ones too.
TEST(SessionRanks, CollectivesAlongAnyAxis) {
  const Shape shape{2, 5, 7};
  for (const int ranks : {2, 3, 4})
    for (int axis = 1; axis < 3; ++axis) {
      SCOPED_TRACE(fmt::format("axis {}, {} ranks", axis, ranks));
      std::vector<float> whole(static_cast<size_t>(shape.numel()));
      for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i);
      const auto all = on_ranks(ranks, [&](comm::Group* group) {
        Builder b("g");
        const int64_t own = part_of(shape[axis], group->size(), group->rank()).size();
        const Value x = b.input({DType::f32, shape}, InputKind::step, "whole");
        const Value rank = b.input({DType::i32, {}}, InputKind::step, "rank");
        const ShardParams parts{group->size(), axis, shape[axis], own},
            wholes{group->size(), axis, shape[axis], shape[axis]};
        b.output(all_gather(local_slice(x, rank, parts), wholes), OutputKind::result, "gathered");
        b.output(all_gather(reduce_scatter(x, parts), wholes), OutputKind::result, "summed");
        SessionOptions o;
        o.threads = 1;
        o.group = group;
        Session s(set_of(b.finish()), o);
        s.feed("whole", whole);
        s.run("g");
        return std::pair(s.result("gathered"), s.result("summed"));
      });
      for (const auto& [gathered, summed] : all) {
        EXPECT_EQ(gathered, whole);
        for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(summed[i], static_cast<float>(ranks) * whole[i]);
      }
    }
}

// A rank that fails takes the others with it: nobody waits for ever.
TEST(SessionRanks, AFailureEndsAll) {
  const auto groups = comm::thread_groups(3);
  std::vector<std::string> errors(groups.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < groups.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        SessionOptions o;
        o.threads = 1;
        o.group = groups[r].get();
        Session s(steps(), o);
        if (r == 1) throw UserError("no more data");
        const Part own = part_of(kSamples, 3, static_cast<int64_t>(r));
        s.feed("x", std::vector<float>(static_cast<size_t>(own.size() * kWide)));
        s.feed("y", std::vector<float>(static_cast<size_t>(own.size())));
        s.feed("lr", 0.1);
        s.run("train");
        s.metric("loss");
      } catch (const std::exception& e) {
        errors[r] = e.what();
        groups[r]->abort(e.what());
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& e : errors) EXPECT_NE(e.find("no more data"), std::string::npos) << e;
}

}  // namespace
}  // namespace lathe
