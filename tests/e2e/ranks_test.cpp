// `lathe train --ranks`: several ranks, threads of one process, train as one does.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <tuple>

#include "base/thread_rank.h"
#include "data/arrays.h"
#include "device_training.h"
#include "io/safetensors.h"
#include "loop/profile.h"
#include "loop/ranks/step_timeline.h"
#include "loop/trainer.h"
#include "process.h"

namespace lathe {
namespace {

using test::newest_checkpoint;
using test::run_lathe;
using test::TempDir;

// Samples that count who reads them.
class CountedSource final : public data::Source {
 public:
  explicit CountedSource(std::shared_ptr<const data::Source> of) : of_(std::move(of)), reads_(size_t(of_->size())) {}
  int64_t size() const override { return of_->size(); }
  std::span<const data::Field> fields() const override { return of_->fields(); }
  std::string description() const override { return of_->description(); }
  int64_t resident_bytes() const override { return of_->resident_bytes(); }
  int64_t classes() const override { return of_->classes(); }
  void read(int64_t sample, data::SampleSpans out) const override {
    if (slow_rank_ >= 0 && thread_rank() == slow_rank_) std::this_thread::sleep_for(std::chrono::milliseconds(6));
    if (sample == broken_) throw UserError("sample 7 is torn", Exit::bad_data);
    ++reads_[static_cast<size_t>(sample)];
    of_->read(sample, out);
    const float nan = std::nanf("");
    if (sample == poisoned_) std::memcpy(out[0].data(), &nan, sizeof nan);
  }
  std::vector<int> take() const {
    std::vector<int> out;
    for (std::atomic<int>& n : reads_) out.push_back(n.exchange(0));
    return out;
  }
  void break_sample(int64_t sample) { broken_ = sample; }
  void poison_sample(int64_t sample) { poisoned_ = sample; }
  void slow_down(int rank) { slow_rank_ = rank; }

 private:
  std::shared_ptr<const data::Source> of_;
  mutable std::vector<std::atomic<int>> reads_;
  int64_t broken_ = -1, poisoned_ = -1;
  int slow_rank_ = -1;
};

class Ranks : public testing::Test {
 protected:
  static constexpr size_t kSamples = 50;

  Ranks() {
    for (size_t i = 0; i < kSamples; ++i) {
      const auto at = static_cast<float>(i % 16) / 8 - 1;
      x_[2 * i] = at, x_[2 * i + 1] = 1, y_[i] = at > 0;
    }
    options_.eval_data = data::array_source(x_, {2}, y_, 2);
    source_ = std::make_shared<CountedSource>(options_.eval_data);
    options_.train_data = source_;
    options_.handle_signals = false;
  }
  static Recipe recipe(const Sets& sets = {}) {
    return parse_recipe(R"(
      model = { family = "mlp", hidden = [8] }
      optimizer = { name = "adam", lr = 0.02 }
      train = { epochs = 4, batch_size = 16, log_every = 1 }
      checkpoint = { every_steps = 3 }
      data.prefetch = 1
      device.threads = 1
      comm.timeout = 20
    )",
                        "ranks.toml", sets);
  }
  TrainResult run(const Recipe& r, int ranks, const std::string& out) {
    options_.out = dir_.path(out);
    return ranks > 1 ? train_on_ranks(r, options_, ranks) : train(r, options_);
  }

  const TempDir dir_;
  std::vector<float> x_ = std::vector<float>(2 * kSamples);
  std::vector<int32_t> y_ = std::vector<int32_t>(kSamples);
  std::shared_ptr<CountedSource> source_;
  TrainOptions options_;
};

// 50 samples in batches of 16: three and a tail of 2, which are fewer than the ranks.
TEST_F(Ranks, EverySampleOnceInAnEpoch) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    run(recipe({"train.epochs=1"}), ranks, fmt::format("once{}", ranks));
    const std::vector<int> reads = source_->take();
    // The loader reads batches of the next epoch ahead.
    for (const int n : reads) EXPECT_TRUE(n == 1 || n == 2) << n << " on " << ranks << " ranks";
    EXPECT_LE(std::ranges::count(reads, 2), 32 + 16) << ranks;
  }
}

TEST_F(Ranks, MoreRanksThanSamplesInABatch) {
  const TrainResult one = run(recipe({"train.batch_size=4"}), 1, "one");
  const TrainResult many = run(recipe({"train.batch_size=4"}), 6, "many");
  EXPECT_NEAR(many.eval_loss, one.eval_loss, 1e-4);
  EXPECT_EQ(many.ranks, 6);
}

TEST_F(Ranks, ResumeOnOtherNumbersOfRanks) {
  run(recipe(), 1, "whole");
  const std::vector<double> whole = test::losses(dir_.path("whole"));
  options_.resume = true;
  for (const auto& [ranks, steps] : {std::pair{4, 4}, {2, 7}, {1, 11}, {3, 16}})
    run(recipe({fmt::format("train.steps={}", steps)}), ranks, "parts");
  const std::vector<double> parts = test::losses(dir_.path("parts"));
  ASSERT_EQ(parts.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-4) << "step " << i + 1;
}

// Whatever ranks divide of the state, checkpoints are whole: the next part of the run divides otherwise.
TEST_F(Ranks, ShardedStateIsTheSameRun) {
  run(recipe({"model.hidden=[64, 64]"}), 1, "whole");
  const std::vector<double> whole = test::losses(dir_.path("whole"));
  options_.resume = true;
  for (const auto& [ranks, steps, shard] : {std::tuple{3, 4, 3}, {2, 7, 1}, {1, 9, 3}, {4, 13, 2}, {2, 16, 0}})
    run(recipe(
            {"model.hidden=[64, 64]", fmt::format("train.steps={}", steps), fmt::format("parallel.shard={}", shard)}),
        ranks, "parts");
  const std::vector<double> parts = test::losses(dir_.path("parts"));
  ASSERT_EQ(parts.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-4) << "step " << i + 1;
}

// What one rank cannot read ends all of them, with its name; what was kept is there.
TEST_F(Ranks, AnErrorOfOneRankIsThatOfAll) {
  source_->break_sample(7);
  try {
    run(recipe(), 3, "torn");
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("sample 7 is torn"), std::string::npos) << e.what();
    EXPECT_EQ(e.exit_code(), Exit::bad_data);
  }
  source_->break_sample(-1);
  options_.resume = true;
  EXPECT_EQ(run(recipe(), 2, "torn").steps, 16);
}

TEST_F(Ranks, TheBestOfValidationIsChosenAlike) {
  const Sets sets{"data.validation=0.2", "checkpoint.best=true", "train.patience=3"};
  const TrainResult one = run(recipe(sets), 1, "best1"), three = run(recipe(sets), 3, "best3");
  EXPECT_EQ(three.best_step, one.best_step);
  EXPECT_EQ(three.steps, one.steps);
  ASSERT_TRUE(three.validation && one.validation);
  EXPECT_EQ(three.validation->samples, one.validation->samples);
}

// One sample is not a number: the rank that has it says so, and all refuse the step.
TEST_F(Ranks, NoRankRefusesAlone) {
  source_->poison_sample(7);
  for (const int ranks : {1, 3}) {
    const TrainResult r = run(recipe({"train.on_nan=skip"}), ranks, fmt::format("skip{}", ranks));
    EXPECT_EQ(r.skipped, 4) << ranks;  // once in each epoch
    EXPECT_TRUE(std::isfinite(r.eval_loss)) << ranks;
    try {
      run(recipe({"train.on_nan=stop"}), ranks, fmt::format("stop{}", ranks));
      FAIL() << "expected an error";
    } catch (const Error& e) {
      EXPECT_EQ(e.exit_code(), Exit::bad_data) << e.what();
      EXPECT_NE(std::string(e.what()).find("are not both finite"), std::string::npos) << e.what();
    }
  }
}

// All ranks leave an evaluation after the same batch, and evaluate again where the run continues.
TEST_F(Ranks, ASignalEndsAnEvaluation) {
  const Recipe r = recipe({"train.eval_batch=4"});  // 13 batches
  for (const int ranks : {2, 3}) {
    const std::string whole = fmt::format("whole{}", ranks), left = fmt::format("left{}", ranks);
    const TrainResult undisturbed = run(r, ranks, whole);
    options_.handle_signals = true;
    options_.on_step = [](int64_t step, Executor&) {
      if (step == 4) std::raise(SIGTERM);
    };
    const TrainResult ended = run(r, ranks, left);
    EXPECT_TRUE(ended.preempted && !ended.test) << ranks;
    EXPECT_EQ(ended.steps, 4) << ranks;
    options_.handle_signals = false;
    options_.on_step = nullptr;
    options_.resume = true;
    EXPECT_EQ(run(r, ranks, left).eval_loss, undisturbed.eval_loss) << ranks;
    EXPECT_EQ(test::read_file(dir_.path(left + "/metrics.jsonl")),
              test::read_file(dir_.path(whole + "/metrics.jsonl")));
    options_.resume = false;
  }
}

// The others wait for the rank whose data are slow, and the run says so.
TEST_F(Ranks, TheSlowRankIsNamed) {
  source_->slow_down(1);
  const Recipe steady = recipe({"checkpoint.every_steps=0", "checkpoint.every_epochs=0", "train.eval_every=0"});
  StepProfile profile(steady, dir_.path("slow/trace.json"), 8);
  options_.on_step = [&](int64_t, Executor& e) { profile.after_step(e); };
  const TrainResult r = run(steady, 3, "slow");
  profile.finish();
  ASSERT_EQ(r.by_rank.size(), 3u);
  const RankRow& slow = r.by_rank[1];
  EXPECT_EQ(find_straggler(r.by_rank), &slow) << straggler_text(r.by_rank);
  EXPECT_GT(slow.data, 0.1) << "16 steps of 5 samples";
  EXPECT_GT(late_seconds(r.by_rank, slow), 0.5 * slow.data);
  for (const RankRow& row : r.by_rank) {
    EXPECT_EQ(row.steps, 16);
    EXPECT_EQ(row.allocated, row.predicted);
    EXPECT_GT(row.predicted, 0);
    EXPECT_GT(row.communication, 0);
    EXPECT_GT(row.exposed, 0);
    EXPECT_LE(row.exposed, row.seconds);
  }
  const auto t = parse_timeline(test::read_file(dir_.path("slow/timeline.json")));
  ASSERT_TRUE(t);
  EXPECT_EQ(t->steps, 8);
  ASSERT_EQ(t->ranks.size(), 3u);
  EXPECT_GT(t->collectives, 0);
  EXPECT_GT(t->ranks[1].late, 0.005);
  for (const size_t other : {0, 2}) {
    EXPECT_LT(t->ranks[other].late, 0.5 * t->ranks[1].late);
    EXPECT_GT(t->ranks[other].sums[static_cast<size_t>(StepPart::waiting)], 0.005);
  }
}

// As a user does it.
TEST(RanksProgram, ASignalStopsAllAfterOneStep) {
  const TempDir dir;
  const auto args = [&](const char* ranks, int64_t steps) {
    return std::vector<std::string>{"train",   "mlp",
                                    "--ranks", ranks,
                                    "--out",   dir.path("run"),
                                    "--set",   "data.source=synthetic",
                                    "--set",   "data.train_samples=3000",
                                    "--set",   "device.threads=1",
                                    "--set",   fmt::format("train.steps={}", steps)};
  };
  test::Running program(args("3", 1'000'000));
  ASSERT_TRUE(test::wait_for_text(dir.path("run") + "/metrics.jsonl", "\"step\":50", 60));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), static_cast<int>(Exit::preempted));
  const auto summary = nlohmann::json::parse(test::read_file(dir.path("run") + "/summary.json"));
  EXPECT_EQ(summary["preempted"], true);
  EXPECT_EQ(summary["ranks"], 3);
  const int64_t steps = summary["steps"];
  EXPECT_GE(steps, 50);
  // Continued by another number of ranks.
  std::vector<std::string> more = args("2", steps + 10);
  more.insert(more.end(), {"--resume", "--quiet"});
  const auto r = run_lathe(more);
  EXPECT_EQ(r.code, 0) << r.err;
  const auto eval = run_lathe({"eval", dir.path("run"), "--json"});
  EXPECT_EQ(eval.code, 0) << eval.err;
}

TEST(RanksProgram, EvaluatesAsOneDoes) {
  const TempDir dir;
  const auto r =
      run_lathe({"train", "mlp", "--ranks", "2", "--json", "--out", dir.path("run"), "--set", "data.source=synthetic",
                 "--set", "data.train_samples=500", "--set", "data.test_samples=333", "--set", "train.epochs=1"});
  ASSERT_EQ(r.code, 0) << r.err;
  const auto trained = nlohmann::json::parse(r.out);
  const auto e = run_lathe({"eval", dir.path("run"), "--json"});
  ASSERT_EQ(e.code, 0) << e.err;
  const auto evaluated = nlohmann::json::parse(e.out);
  EXPECT_EQ(evaluated["accuracy"], trained["test_accuracy"]);
  EXPECT_NEAR(evaluated["loss"].get<double>(), trained["test_loss"].get<double>(), 1e-5);
  EXPECT_EQ(trained["memory_predicted"], trained["memory_allocated"]);
  for (const char* level : {"parallel.shard=0", "parallel.shard=3"}) {
    const auto three = run_lathe({"eval", dir.path("run"), "--ranks", "3", "--json", "--set", level});
    ASSERT_EQ(three.code, 0) << three.err;
    const auto again = nlohmann::json::parse(three.out);
    EXPECT_EQ(again["samples"], evaluated["samples"]);
    EXPECT_EQ(again["accuracy"], evaluated["accuracy"]);
    EXPECT_NEAR(again["loss"].get<double>(), evaluated["loss"].get<double>(), 1e-5);
  }
}

// parallel.same_bits: byte-identical weights, optimizer state and log on any number of ranks.
void expect_same_bits(const std::string& recipe, const std::vector<std::string>& sets) {
  const TempDir dir;
  const auto trained = [&](int ranks) {
    const std::string out = dir.path(std::to_string(ranks));
    std::vector<std::string> args{"train", recipe, "--quiet", "--ranks", std::to_string(ranks), "--out", out};
    for (const char* s : {"train.steps=6", "data.test_samples=30", "parallel.same_bits=true", "device.threads=1"})
      args.insert(args.end(), {"--set", s});
    for (const std::string& s : sets) args.insert(args.end(), {"--set", s});
    const auto r = run_lathe(args);
    EXPECT_EQ(r.code, 0) << r.err;
    const std::string at = newest_checkpoint(out);
    return test::read_file(at + "/model.safetensors") + test::read_file(at + "/optimizer.safetensors") +
           test::read_file(out + "/metrics.jsonl");
  };
  const std::string one = trained(1);
  ASSERT_GT(one.size(), 1000u);
  for (const int ranks : test::all_tests() ? std::vector{2, 3, 4, 8} : std::vector{2, 3, 8})
    EXPECT_TRUE(one == trained(ranks)) << recipe << " on " << ranks << " ranks";
}

TEST(RanksProgram, SameBitsOfMlp) {
  expect_same_bits("mlp",
                   {"data.source=synthetic", "data.train_samples=70", "train.batch_size=32", "train.clip_norm=1"});
}
TEST(RanksProgram, SameBitsOfCnnWithNormDropoutAugmentation) {
  expect_same_bits("fashion_mnist", {"data.source=synthetic", "data.train_samples=70", "train.batch_size=32",
                                     "model.dropout=0.3", "data.augment.rotate=10"});
}
TEST(RanksProgram, SameBitsOfGpt) {
  expect_same_bits("gpt_tiny", {"data.path=", "model.layers=2", "model.width=32", "model.sequence=24",
                                "train.batch_size=6", "data.train_samples=50", "model.dropout=0.1"});
}
TEST(RanksProgram, SameBitsOfAccumulation) {
  expect_same_bits("mlp", {"data.source=synthetic", "data.train_samples=300", "train.batch_size=16",
                           "train.accumulate=3", "train.ema=0.9"});
}

TEST(RanksProgram, WrongNumbersAreRefused) {
  EXPECT_EQ(run_lathe({"train", "mlp", "--ranks", "0"}).code, static_cast<int>(Exit::usage));
  EXPECT_EQ(run_lathe({"train", "mlp", "--ranks", "x"}).code, static_cast<int>(Exit::usage));
}

}  // namespace
}  // namespace lathe
