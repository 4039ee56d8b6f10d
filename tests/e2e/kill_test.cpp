// kill -9 at random moments, signals, and the lock: whatever happens, --resume ends with the bits of an undisturbed
// run.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "process.h"

namespace lathe::test {
namespace {

// A small net with everything that carries state over steps: momentum, running statistics, dropout, augmentation.
std::vector<std::string> small_run(const std::string& out, int steps) {
  return {"train",
          "fashion_mnist",
          "--out",
          out,
          "--quiet",
          "--set",
          "data.source=synthetic",
          "--set",
          "data.train_samples=200",
          "--set",
          "data.test_samples=50",
          "--set",
          "model.channels=[4,6]",
          "--set",
          "model.dense=16",
          "--set",
          "model.dropout=0.2",
          "--set",
          "train.batch_size=16",
          "--set",
          "train.steps=" + std::to_string(steps),
          "--set",
          "train.log_every=1",
          "--set",
          "checkpoint.every_steps=3",
          "--set",
          "data.augment.rotate=5",
          "--set",
          "train.eval_every=0"};
}

std::vector<std::string> with(std::vector<std::string> args, const std::vector<std::string>& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

void expect_equal_runs(const std::string& a, const std::string& b) {
  const std::string ca = newest_checkpoint(a), cb = newest_checkpoint(b);
  ASSERT_FALSE(ca.empty());
  EXPECT_EQ(std::filesystem::path(ca).filename(), std::filesystem::path(cb).filename());
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_TRUE(read_file(ca + "/" + file) == read_file(cb + "/" + file)) << file << " differs";
  EXPECT_EQ(read_file(a + "/metrics.jsonl"), read_file(b + "/metrics.jsonl"));
}

TEST(Kill, Nine) {
  const TempDir dir;
  constexpr int kSteps = 120;
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run_lathe(small_run(dir.path("whole"), kSteps)).code, 0);
  const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const int wanted = all_tests() ? 50 : 5;
  std::mt19937 random(20240501);
  std::uniform_real_distribution<double> moment(0.1, 0.9);
  int kills = 0;
  for (int run = 0; kills < wanted; ++run) {
    ASSERT_LT(run, 4 * wanted) << "the runs end before they can be killed";
    const std::string out = dir.path("killed" + std::to_string(run));
    // Several kills in one run, then to the end.
    for (int attempt = 0; attempt < 5; ++attempt) {
      Running r(with(small_run(out, kSteps), {"--resume"}));
      std::this_thread::sleep_for(std::chrono::duration<double>(moment(random) * whole * 0.5));
      r.signal(SIGKILL);
      if (r.wait() != -SIGKILL) break;
      ++kills;
    }
    const Outcome last = run_lathe(with(small_run(out, kSteps), {"--resume"}));
    ASSERT_EQ(last.code, 0) << last.err;
    expect_equal_runs(dir.path("whole"), out);
    std::filesystem::remove_all(out);
  }
  std::printf("%d kills\n", kills);
}

TEST(Kill, SignalsLeaveACheckpointAndExit75) {
  const TempDir dir;
  constexpr int kSteps = 4000;
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP}) {
    const std::string out = dir.path("signal" + std::to_string(number));
    Running r(small_run(out, kSteps));
    ASSERT_TRUE(wait_for_file(out + "/checkpoints/step-000000003", 60));
    r.signal(number);
    EXPECT_EQ(r.wait(), 75) << number;
    const std::string at = newest_checkpoint(out);
    // Go on for one more step and compare with a run that was never stopped.
    const int step = std::stoi(at.substr(at.rfind('-') + 1)) + 1;
    ASSERT_LT(step, kSteps);
    ASSERT_EQ(run_lathe(with(small_run(out, step), {"--resume"})).code, 0);
    const std::string whole = dir.path("whole" + std::to_string(number));
    ASSERT_EQ(run_lathe(small_run(whole, step)).code, 0);
    expect_equal_runs(whole, out);
  }
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

constexpr double kSoon = 5;  // seconds in which a signal ends any phase

// Sends the signal after a while and returns how the run ended: in time, as one that has nothing to keep.
void expect_ended_before_the_first_step(const std::vector<std::string>& args, const std::string& out, int number,
                                        double after) {
  const TempDir dir;
  Running r(args, dir.path("err"));
  std::this_thread::sleep_for(std::chrono::duration<double>(after));
  const auto start = std::chrono::steady_clock::now();
  r.signal(number);
  EXPECT_EQ(r.wait(), 75) << number;
  EXPECT_LT(seconds_since(start), kSoon) << number;
  EXPECT_NE(read_file(dir.path("err")).find("stopped before the first step"), std::string::npos)
      << read_file(dir.path("err"));
  EXPECT_TRUE(newest_checkpoint(out).empty());
}

// So many layers take seconds to plan.
TEST(Kill, SignalsEndPlanning) {
  const TempDir dir;
  for (const int number : {SIGTERM, SIGINT, SIGUSR1})
    expect_ended_before_the_first_step(
        {"train", "gpt_tiny", "--out", dir.path("run"), "--set", "data.path=", "--set", "model.layers=800", "--set",
         "model.width=16", "--set", "model.heads=2", "--set", "model.sequence=16"},
        dir.path("run"), number, 0.6);
}

TEST(Kill, SignalsEndReading) {
  const TempDir dir;
  {
    std::ofstream file(dir.path("large.csv"));
    file << "label,a,b,c,d,e,f,g,h\n";
    const std::string row = ",0.123456,1.23456,-2.3456,3.4567,4.5678,-5.6789,6.789,7.89\n";
    for (int i = 0; i < 2'000'000; ++i) file << i % 3 << row;
  }
  expect_ended_before_the_first_step(
      {"train", "mlp", "--out", dir.path("run"), "--set", "data.source=csv", "--set",
       "data.path=" + dir.path("large.csv"), "--set", "data.label=label", "--set", "data.classes=3"},
      dir.path("run"), SIGTERM, 0.3);
}

// It is listed as what it is, and a part of a run that ended otherwise is not mistaken for it.
TEST(Kill, RunsStoppedInTheirFirstStepAreListed) {
  const TempDir dir;
  auto args = small_run(dir.path("run"), 2);
  for (const char* set : {"data.train_samples=4096", "model.channels=[48,64]", "train.batch_size=2048"})
    args = with(std::move(args), {"--set", set});
  const auto end_with = [&](int number) {
    Running r(args);
    EXPECT_TRUE(wait_for_text(dir.path("run") + "/recipe.toml", "seed", 60));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    r.signal(number);
    const int code = r.wait();
    return std::pair(code, run_lathe({"runs", dir.path("run"), "--json"}).out);
  };
  const auto [code, listed] = end_with(SIGTERM);
  EXPECT_EQ(code, 75);
  EXPECT_NE(listed.find("\"stopped\""), std::string::npos) << listed;
  std::filesystem::remove(dir.path("run") + "/recipe.toml");
  const auto [killed, failed] = end_with(SIGKILL);
  EXPECT_EQ(killed, -SIGKILL);
  EXPECT_NE(failed.find("\"failed\""), std::string::npos) << failed;
}

// The evaluation is left, and done by the run that continues: with the numbers of a run that was never stopped, and the
// learning rate and the best checkpoint that follow from them.
TEST(Kill, SignalsEndEvaluations) {
  const TempDir dir;
  constexpr int kSteps = 3;
  // One step per epoch; an evaluation takes much longer than a step.
  const auto run = [](const std::string& out) {
    auto args = small_run(out, kSteps);
    for (const char* set : {"train.eval_every=1", "data.train_samples=20000", "data.validation=0.9992",
                            "data.test_samples=64", "train.eval_batch=4", "checkpoint.best=true",
                            "schedule.name=plateau", "schedule.patience=1", "schedule.warmup_steps=0"})
      args = with(std::move(args), {"--set", set});
    return args;
  };
  const std::string out = dir.path("run"), whole = dir.path("whole");
  ASSERT_EQ(run_lathe(run(whole)).code, 0);
  for (int step = 1; step <= kSteps; ++step) {
    Running r(with(run(out), {"--resume"}));
    ASSERT_TRUE(wait_for_text(out + "/metrics.jsonl", "{\"step\":" + std::to_string(step) + ",", 60));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto start = std::chrono::steady_clock::now();
    r.signal(SIGTERM);
    EXPECT_EQ(r.wait(), 75);
    EXPECT_LT(seconds_since(start), kSoon);
    EXPECT_NE(newest_checkpoint(out).find("step-00000000" + std::to_string(step)), std::string::npos);
    EXPECT_EQ(read_file(out + "/metrics.jsonl").find("{\"step\":" + std::to_string(step) + ",\"validation_loss\""),
              std::string::npos);
  }
  const Outcome last = run_lathe(with(run(out), {"--resume"}));
  EXPECT_EQ(last.code, 0) << last.err;
  expect_equal_runs(whole, out);
  for (const char* file : {"/best/step-000000003/model.safetensors", "/best/step-000000002/model.safetensors",
                           "/best/step-000000001/model.safetensors"})
    EXPECT_TRUE(read_file(whole + file) == read_file(out + file)) << file;
}

// A step that takes a second or more is left where no state has changed yet; else it is completed, or, if that takes
// too long, dropped with all steps since the last checkpoint. However it was, the run that continues has the bits of
// one that was never stopped.
TEST(Kill, SignalsEndLongSteps) {
  constexpr int kSteps = 3;
  struct Case {
    const char *set, *batch;
    bool left;  // nearly all of the step comes before the first change of state
  };
  for (const auto& [set, batch, left] : {Case{"train.update=after_all", "1024", true},
                                         {"train.update=at_gradient", "1024", false},
                                         {"train.accumulate=4", "256", false}}) {
    SCOPED_TRACE(set);
    const TempDir dir;
    const auto run = [&, set = set, batch = std::string(batch)](const std::string& out) {
      auto args = small_run(out, kSteps);
      for (const std::string& more :
           {std::string("data.train_samples=4096"), std::string("data.test_samples=8"),
            std::string(all_tests() ? "model.channels=[96,192]" : "model.channels=[48,64]"),
            "train.batch_size=" + batch, std::string("checkpoint.every_steps=0"), std::string(set)})
        args = with(std::move(args), {"--set", more});
      return args;
    };
    const std::string out = dir.path("run"), whole = dir.path("whole");
    ASSERT_EQ(run_lathe(run(whole)).code, 0);
    Running r(run(out));
    ASSERT_TRUE(wait_for_text(out + "/metrics.jsonl", "{\"step\":1,", 120));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto start = std::chrono::steady_clock::now();
    r.signal(SIGTERM);
    EXPECT_EQ(r.wait(), 75);
    EXPECT_LT(seconds_since(start), kSoon);
    if (left) {
      EXPECT_NE(newest_checkpoint(out).find("step-000000001"), std::string::npos) << newest_checkpoint(out);
    }
    const Outcome last = run_lathe(with(run(out), {"--resume"}));
    ASSERT_EQ(last.code, 0) << last.err;
    expect_equal_runs(whole, out);
  }
}

// One batch holds all of the set.
TEST(Kill, SignalsEndLongBatchesOfEvaluations) {
  const TempDir dir;
  auto args = small_run(dir.path("run"), 1);
  for (const char* set :
       {"train.eval_every=1", "data.test_samples=8192", "train.eval_batch=8192", "model.channels=[64,96]"})
    args = with(std::move(args), {"--set", set});
  Running r(args);
  ASSERT_TRUE(wait_for_text(dir.path("run") + "/metrics.jsonl", "{\"step\":1,", 60));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  r.signal(SIGTERM);
  EXPECT_EQ(r.wait(), 75);
  EXPECT_EQ(read_file(dir.path("run") + "/metrics.jsonl").find("eval_loss"), std::string::npos);
  ASSERT_EQ(run_lathe(with(args, {"--resume"})).code, 0);
  EXPECT_NE(read_file(dir.path("run") + "/metrics.jsonl").find("eval_loss"), std::string::npos);
}

TEST(Kill, SecondRunInADirectoryIsRefused) {
  const TempDir dir;
  Running r(small_run(dir.path("run"), 100000));
  ASSERT_TRUE(wait_for_file(dir.path("run") + "/checkpoints/step-000000003", 60));
  const Outcome second = run_lathe(with(small_run(dir.path("run"), 100000), {"--resume"}));
  EXPECT_EQ(second.code, 73);
  EXPECT_NE(second.err.find(std::to_string(r.pid())), std::string::npos) << second.err;
}

TEST(Kill, DamagedCheckpointIsPassedOver) {
  const TempDir dir;
  const std::string out = dir.path("run"), whole = dir.path("whole");
  ASSERT_EQ(run_lathe(small_run(out, 9)).code, 0);
  ASSERT_EQ(run_lathe(small_run(whole, 15)).code, 0);
  std::filesystem::resize_file(newest_checkpoint(out) + "/model.safetensors", 100);
  auto args = with(small_run(out, 15), {"--resume"});
  std::erase(args, "--quiet");
  const Outcome r = run_lathe(args);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("step-000000009"), std::string::npos) << "the damaged one is named: " << r.out;
  EXPECT_NE(r.out.find("resumed at step 6"), std::string::npos) << r.out;
  expect_equal_runs(whole, out);
}

TEST(Kill, ResumeAtTheEndChangesNothing) {
  const TempDir dir;
  const std::string out = dir.path("run");
  ASSERT_EQ(run_lathe(small_run(out, 6)).code, 0);
  const auto files = [&] {
    return read_file(out + "/summary.json") + read_file(out + "/recipe.toml") + read_file(out + "/metrics.jsonl");
  };
  const std::string before = files();
  auto args = with(small_run(out, 6), {"--resume"});
  std::erase(args, "--quiet");
  const Outcome r = run_lathe(args);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("nothing to do"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("test accuracy"), std::string::npos) << r.out;
  EXPECT_EQ(files(), before);
  // What cannot start leaves the run as it was, and a new run leaves nothing.
  EXPECT_EQ(run_lathe(with(small_run(out, 9), {"--resume", "--set", "device=opencl:99"})).code == 0, false);
  EXPECT_EQ(files(), before);
  EXPECT_NE(run_lathe(with(small_run(dir.path("new"), 9), {"--set", "device=opencl:99"})).code, 0);
  EXPECT_FALSE(std::filesystem::exists(dir.path("new")));
}

TEST(Kill, OtherRecipeIsNotResumed) {
  const TempDir dir;
  ASSERT_EQ(run_lathe(small_run(dir.path("run"), 6)).code, 0);
  const Outcome r = run_lathe(with(small_run(dir.path("run"), 9), {"--resume", "--set", "optimizer.lr=0.5"}));
  EXPECT_EQ(r.code, 78);
  EXPECT_NE(r.err.find("optimizer.lr"), std::string::npos) << r.err;
  EXPECT_EQ(run_lathe(small_run(dir.path("run"), 9)).code, 73) << "without --resume";
}

}  // namespace
}  // namespace lathe::test
