// kill -9 of a run on one or several ranks, and --resume: weights, optimizer state and log are those of a run that was
// never killed, byte for byte; so are the order of samples, augmentation and dropout, which they follow from.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <random>

#include "process.h"

namespace lathe::test {
namespace {

constexpr int kSteps = 200, kMiddle = 100, kEvery = 20;  // steps; kEvery: between two checkpoints

// A small net with everything that carries state over steps: moments, running statistics, averages, dropout,
// augmentation; 13 steps in an epoch, the last one with a tail that has fewer samples than ranks.
std::vector<std::string> run_of(const std::string& out, int ranks, int seed, int steps) {
  std::vector<std::string> args{"train", "fashion_mnist", "--quiet", "--ranks", std::to_string(ranks), "--out", out};
  for (const std::string& set :
       {std::string("data.source=synthetic"), std::string("data.shape=[10,10,1]"),
        std::string("data.train_samples=195"), std::string("data.test_samples=20"), std::string("model.channels=[4,6]"),
        std::string("model.dense=16"), std::string("model.dropout=0.2"), std::string("train.batch_size=16"),
        std::string("train.ema=0.9"), std::string("train.log_every=1"), std::string("train.eval_every=0"),
        std::string("data.augment.rotate=5"), std::string("device.threads=1"), "seed=" + std::to_string(seed),
        "train.steps=" + std::to_string(steps), "checkpoint.every_steps=" + std::to_string(kEvery)})
    args.insert(args.end(), {"--set", set});
  return args;
}

std::string bytes_of(const std::string& run) {
  const std::string at = newest_checkpoint(run);
  EXPECT_NE(at.find("step-000000200"), std::string::npos) << at;
  std::string all;
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors", "/average.safetensors"}) {
    const std::string bytes = read_file(at + file);
    EXPECT_GT(bytes.size(), 500u) << file;
    all += bytes;
  }
  return all + read_file(run + "/metrics.jsonl");
}

// Kills the run when the step is in the log. False: it came to its end before.
bool is_killed(const std::vector<std::string>& args, const std::string& out, int step) {
  Running r(args);
  EXPECT_TRUE(wait_for_text(out + "/metrics.jsonl", "{\"step\":" + std::to_string(step) + ",", 120));
  r.signal(SIGKILL);
  return r.wait() == -SIGKILL;
}

// Killed at the step, or before it where the run is too fast for that; then to the end.
void expect_same_bytes(const std::string& whole, const std::string& out, int ranks, int seed, int killed_at) {
  auto args = run_of(out, ranks, seed, kSteps);
  for (; !is_killed(args, out, killed_at); killed_at /= 2) {
    ASSERT_GT(killed_at, 1) << "the runs end before they can be killed";
    std::filesystem::remove_all(out);
  }
  args.push_back("--resume");
  const Outcome r = run_lathe(args);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(whole == bytes_of(out)) << ranks << " ranks, seed " << seed << ", killed at step " << killed_at;
  std::filesystem::remove_all(out);
}

TEST(Resume, AKilledRunHasTheBytesOfAWholeOne) {
  std::mt19937 random(20261118);
  std::uniform_int_distribution<int> moment(1, kSteps - 20);
  const int seeds = all_tests() ? 20 : 2;
  int kills = 0;
  for (int seed = 0; seed < seeds; ++seed)
    for (const int ranks : {1, 2, 4}) {
      const TempDir dir;
      const Outcome r = run_lathe(run_of(dir.path("whole"), ranks, seed, kSteps));
      ASSERT_EQ(r.code, 0) << r.err;
      const std::string whole = bytes_of(dir.path("whole"));
      // In the middle, where a checkpoint is being written, or anywhere.
      std::vector<int> moments{seed % 2 ? kMiddle : moment(random)};
      if (all_tests()) moments = {kMiddle, moment(random)};
      for (const int at : moments) {
        expect_same_bytes(whole, dir.path("killed" + std::to_string(kills++)), ranks, seed, at);
        if (HasFatalFailure()) return;
      }
    }
  std::printf("%d kills\n", kills);
}

}  // namespace
}  // namespace lathe::test
