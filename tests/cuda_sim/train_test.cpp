// The program itself on the simulated card: its libraries stand where NVIDIA's would, and `lathe` opens them.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "device_training.h"
#include "process.h"

namespace lathe::test {
namespace {

const std::vector<std::string> kEnv{"LD_LIBRARY_PATH=" LATHE_CUDA_SIM_LIBS, "LATHE_CACHE_DIR=" LATHE_SIM_CACHE};

// Trains on both devices and compares the losses; rounding differs, and training amplifies it step by step.
void compare(const std::string& recipe, const std::vector<std::string>& settings, size_t steps, double tolerance) {
  const TempDir dir;
  double expected = 0, actual = 0;
  for (const std::string device : {"cpu", "cuda"}) {
    std::vector<std::string> args{"train",    recipe,
                                  "--device", device,
                                  "--out",    dir.path(device),
                                  "--json",   "--quiet",
                                  "--set",    "train.log_every=1",
                                  "--set",    "train.steps=" + std::to_string(steps)};
    for (const std::string& s : settings) {
      args.push_back("--set");
      args.push_back(s);
    }
    const auto r = run_lathe(args, kEnv);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(r.err.find("cuda_sim:"), std::string::npos) << r.err;
    const auto j = nlohmann::json::parse(r.out);
    EXPECT_EQ(j["memory_predicted"], j["memory_allocated"]) << device;
    (device == "cpu" ? expected : actual) = j["test_loss"];
  }
  EXPECT_NEAR(actual, expected, tolerance * (1 + expected)) << recipe << ", test loss";
  const auto cpu = losses(dir.path("cpu")), cuda = losses(dir.path("cuda"));
  ASSERT_EQ(cpu.size(), steps);
  ASSERT_EQ(cuda.size(), steps);
  for (size_t i = 0; i < steps; ++i)
    EXPECT_NEAR(cuda[i], cpu[i], tolerance * (1 + cpu[i])) << recipe << " step " << i + 1;
}

// Epochs end with a smaller batch and an evaluation, which comes between the staging of a batch and its step.
TEST(CudaTrain, MlpLikeTheCpu) {
  compare("mlp", {"data.train_samples=100", "data.test_samples=50", "train.batch_size=32", "model.hidden=[64, 32]"}, 16,
          2e-4);
}

// A traced step is not replayed as one graph: its kernels are launched, and waited for, one by one.
TEST(CudaTrain, AProfileChangesNoNumber) {
  const TempDir dir;
  std::vector<std::string> logs;
  for (const bool profiled : {false, true}) {
    const std::string out = dir.path(profiled ? "profiled" : "plain");
    std::vector<std::string> args{"train",
                                  "mlp",
                                  "--device",
                                  "cuda",
                                  "--out",
                                  out,
                                  "--quiet",
                                  "--set",
                                  "data.train_samples=100",
                                  "--set",
                                  "data.test_samples=50",
                                  "--set",
                                  "train.batch_size=32",
                                  "--set",
                                  "model.hidden=[16]",
                                  "--set",
                                  "train.log_every=1",
                                  "--set",
                                  "train.steps=7"};
    if (profiled) args.push_back("--profile");
    const auto r = run_lathe(args, kEnv);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(r.err.find("cuda_sim:"), std::string::npos) << r.err;
    logs.push_back(read_file(out + "/metrics.jsonl"));
  }
  EXPECT_EQ(logs[0], logs[1]);
  int steps = 0, kernels = 0;
  const auto trace = nlohmann::json::parse(read_file(dir.path("profiled/trace.json")));
  for (const auto& e : trace["traceEvents"]) {
    steps += e["ph"] == "X" && e["cat"] == "step";
    kernels += e["ph"] == "X" && e["cat"] == "kernel";
  }
  EXPECT_EQ(steps, 4);
  EXPECT_GE(kernels, 5 * steps);
}

TEST(CudaTrain, CnnLikeTheCpu) {
  compare("fashion_mnist",
          {"data.train_samples=40", "data.test_samples=20", "train.batch_size=16", "model.channels=[4, 8]",
           "model.dense=16"},
          6, 1e-3);
}

TEST(CudaTrain, GptLikeTheCpu) {
  compare("gpt_tiny",
          {"data.path=", "model.layers=2", "model.heads=2", "model.width=16", "model.sequence=16", "train.batch_size=4",
           "data.test_samples=8", "data.train_samples=64"},
          6, 1e-3);
}

// 16-bit products round differently where sums are split differently, and training amplifies it.
TEST(CudaTrain, SixteenBitsLikeTheCpu) {
  for (const char* precision : {"bf16", "f16"}) {
    const std::string set = std::string("train.precision=") + precision;
    compare("mlp",
            {"data.train_samples=100", "data.test_samples=50", "train.batch_size=32", "model.hidden=[64, 32]", set}, 8,
            2e-2);
    compare("fashion_mnist",
            {"data.train_samples=40", "data.test_samples=20", "train.batch_size=16", "model.channels=[8, 8]",
             "model.dense=16", set},
            4, 2e-2);
    compare("gpt_tiny",
            {"data.path=", "model.layers=1", "model.heads=2", "model.width=16", "model.sequence=16",
             "train.batch_size=4", "data.test_samples=8", "data.train_samples=64", set},
            4, 2e-2);
  }
}

struct Traced {
  std::string kind, name;
  double begin = 0, end = 0;
};

std::vector<Traced> read_trace(const std::string& path) {
  std::vector<Traced> out;
  std::istringstream lines(read_file(path));
  for (Traced t; lines >> t.kind >> t.name >> t.begin >> t.end;) out.push_back(t);
  return out;
}

// A card that is slower than the host, seen from its driver: between the first step and the last no call waits or makes
// anything, and every batch starts to move before the step in front of it ends.
TEST(CudaTrain, TheHostIsAhead) {
  constexpr size_t kSteps = 16;
  struct Row {
    std::string recipe;
    std::vector<std::string> settings;
  };
  const Row rows[] = {{"mlp", {"model.hidden=[64, 32]"}},
                      {"fashion_mnist", {"model.channels=[4, 8]", "model.dense=16"}}};
  for (const Row& row : rows) {
    const TempDir dir;
    std::vector<std::string> args{"train", row.recipe, "--device", "cuda", "--out", dir.path("run"), "--json", "-q"};
    std::vector<std::string> settings{"data.source=synthetic", "data.train_samples=64",    "data.test_samples=16",
                                      "train.batch_size=16",   "train.eval_every=0",       "train.log_every=1000",
                                      "train.steps=16",        "checkpoint.every_epochs=0"};
    settings.insert(settings.end(), row.settings.begin(), row.settings.end());
    for (const std::string& s : settings) args.insert(args.end(), {"--set", s});
    std::vector<std::string> env = kEnv;
    env.push_back("LATHE_CUDA_SIM_SLOW=8");
    env.push_back("LATHE_CUDA_SIM_TRACE=" + dir.path("trace"));
    const auto r = run_lathe(args, env);
    ASSERT_EQ(r.code, 0) << r.err;
    const auto calls = nlohmann::json::parse(r.out)["device_calls"];
    EXPECT_EQ(calls["launches"], kSteps - 1) << "one recording per step";
    EXPECT_EQ(calls["blocking"], 0);
    EXPECT_EQ(calls["allocations"], 0);
    EXPECT_GT(calls["pauses"], 0) << "the card was no bottleneck";
    EXPECT_LE(calls["pauses"], kSteps / 2);

    std::vector<double> begins, ends;  // of copies on the transfer stream, of steps
    for (const Traced& t : read_trace(dir.path("trace"))) {
      if (t.kind == "graph")
        ends.push_back(t.end);
      else if (t.kind == "copy_in" && t.name == "2")
        begins.push_back(t.begin);
      else if (ends.size() > 1)
        ADD_FAILURE() << row.recipe << " step " << ends.size() << ": " << t.kind << " " << t.name;
      if (ends.size() == kSteps) break;
    }
    ASSERT_EQ(ends.size(), kSteps);
    ASSERT_EQ(begins.size() % kSteps, 0u) << "every step has the same inputs";
    const size_t inputs = begins.size() / kSteps;
    ASSERT_GT(inputs, 0u);
    for (size_t step = 2; step < kSteps; ++step)
      EXPECT_LT(begins[step * inputs], ends[step - 1]) << row.recipe << ": the input of step " << step;
  }
}

TEST(CudaTrain, AccumulatesAndResumes) { expect_resume_keeps_bits("cuda", kEnv); }

// The card fails in the middle of a run: the message says where, files are whole, and the run continues to the same
// bits.
TEST(CudaTrain, LostCard) {
  const TempDir dir;
  const auto train = [&](const std::string& out, const std::string& lost) {
    std::vector<std::string> env = kEnv;
    if (!lost.empty()) env.push_back("LATHE_CUDA_SIM_LOST=" + lost);
    return run_lathe({"train",    "mlp",
                      "--device", "cuda",
                      "--quiet",  "--resume",
                      "--out",    dir.path(out),
                      "--set",    "data.source=synthetic",
                      "--set",    "data.train_samples=100",
                      "--set",    "train.batch_size=16",
                      "--set",    "model.hidden=[32]",
                      "--set",    "train.steps=10",
                      "--set",    "checkpoint.every_steps=2"},
                     env);
  };
  ASSERT_EQ(train("whole", "").code, 0);
  // Uncorrectable ECC error, then a launch failure in what is left.
  for (const char* lost : {"200,214", "150,719"}) {
    const auto r = train("parts", lost);
    EXPECT_EQ(r.code, 71) << r.err;
    for (const char* part : {"cuda:0 (simulated card)", "CUDA_ERROR_", "Program \"", "was running", "in step",
                             "the checkpoint of step", "--resume"})
      EXPECT_NE(r.err.find(part), std::string::npos) << part << " in: " << r.err;
  }
  ASSERT_EQ(train("parts", "").code, 0);
  const std::string whole = read_file(newest_checkpoint(dir.path("whole")) + "/model.safetensors");
  EXPECT_FALSE(whole.empty());
  EXPECT_TRUE(whole == read_file(newest_checkpoint(dir.path("parts")) + "/model.safetensors"));
}

TEST(CudaTrain, SelftestOfTheCard) {
  const auto r = run_lathe({"selftest", "--device", "cuda", "--product", "64", "--json"}, kEnv);
  ASSERT_EQ(r.code, 0) << r.err << r.out;
  EXPECT_EQ(r.err.find("cuda_sim:"), std::string::npos) << r.err;
  const auto j = nlohmann::json::parse(r.out);
  EXPECT_EQ(j["failed"], 0);
  EXPECT_GE(j["training"].size(), 3u);
  for (const auto& t : j["training"]) {
    EXPECT_TRUE(t["ok"].get<bool>()) << t;
    EXPECT_TRUE(t["repeats"].get<bool>()) << t;
  }
  // The simulated card has 512 multiply-adds of TF32 per clock and 1024 of 16 bits where it has 64 of f32.
  ASSERT_EQ(j["card"]["products"].size(), 5u);
  EXPECT_TRUE(j["card"]["failures"].empty()) << j["card"];
  const double f32 = j["card"]["products"][0]["flops"], tf32 = j["card"]["products"][1]["flops"];
  EXPECT_NEAR(tf32 / f32, 8, 0.5);
  EXPECT_GT(j["card"]["overlap"]["share"], 0.9);
}

// A card whose tensor cores are not in use or slow, or whose copies wait for its kernels, does not pass.
TEST(CudaTrain, SelftestJudgesTheCard) {
  const std::vector<std::string> geforce{"NAME=NVIDIA GeForce RTX 4090", "CAPABILITY=89"};
  struct Row {
    std::vector<std::string> flags;
    int code;
    std::vector<std::string> parts;
    size_t failures;
  };
  const Row rows[] = {
      {{}, 0, {}, 0},
      {{"NO_TENSOR=1"},
       70,
       {"FAILED: products in tf32 are 1.00 times as fast", "FAILED: products in bf16 are",
        "FAILED: products in f16 are", "FAILED: products in bf16 reach 5 % of the card's peak"},
       6},
      {{"SLOW_TENSOR=1"}, 70, {"FAILED: products in tf32 reach 20 %", "FAILED: products in f16 reach 20 %"}, 3},
      {{"SERIAL=1"}, 70, {"FAILED: a copy from the host does not run under computation"}, 1},
      {geforce, 0, {"use of tensor cores not judged: they are hardly faster than f32 on this card"}, 0},
      {{geforce[0], geforce[1], "NO_TENSOR=1"},
       70,
       {"FAILED: products in bf16 are 1.00 times as fast as in f32; the card's tensor cores are 2 times as fast"},
       2},
      {{"CAPABILITY=75"}, 0, {"not judged: the card has no unit for it"}, 0},
  };
  for (const Row& row : rows) {
    std::vector<std::string> env = kEnv;
    for (const std::string& flag : row.flags) env.push_back("LATHE_CUDA_SIM_" + flag);
    const auto r = run_lathe({"selftest", "--device", "cuda", "--card", "--product", "64"}, env);
    EXPECT_EQ(r.code, row.code) << r.out;
    for (const std::string& part : row.parts)
      EXPECT_NE(r.out.find(part), std::string::npos) << part << " in: " << r.out;
    size_t failures = 0;
    for (size_t at = r.out.find("FAILED"); at != std::string::npos; at = r.out.find("FAILED", at + 1)) ++failures;
    EXPECT_EQ(failures, row.failures) << r.out;
  }
}

TEST(CudaTrain, WithoutADriverTheReasonIsGiven) {
  const TempDir empty;
  const auto r =
      run_lathe({"train", "mlp", "--device", "cuda", "--out", empty.path("run")}, {"LD_LIBRARY_PATH=" + empty.path()});
  if (r.code == 0) GTEST_SKIP() << "this machine has a card";
  EXPECT_NE(r.err.find("cuda: "), std::string::npos) << r.err;
  const auto d = run_lathe({"devices", "--no-measure"}, {"LD_LIBRARY_PATH=" + empty.path()});
  EXPECT_EQ(d.code, 0);
  EXPECT_NE(d.out.find("cuda       not available: "), std::string::npos) << d.out;
}

}  // namespace
}  // namespace lathe::test
