// Libraries that turn out to have nothing for a node: what runs then, in the workspace that was planned, and what is
// said.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "backend/cuda/cuda_backend.h"
#include "device_training.h"
#include "process.h"
#include "run/conformance.h"
#include "sim.h"

namespace lathe {
namespace {

class CudaSimFallback : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("LATHE_CACHE_DIR", LATHE_SIM_CACHE, 0);
    for (const char* flag : kFlags) setenv(flag, "1", 1);
    sim::take_reports();
  }
  void TearDown() override {
    for (const char* flag : kFlags) unsetenv(flag);
  }
  static constexpr const char* kFlags[] = {"LATHE_CUDA_SIM_NO_ENGINE", "LATHE_CUDA_SIM_NO_ALGORITHM"};
};

// Every product in every type. The suite sees to it that nothing beside result and planned workspace is written.
TEST_F(CudaSimFallback, OwnKernelsComputeTheSame) {
  const cuda::Api api = sim::simulator_api();
  const CudaBackend backend(&api);
  for (const char* op : {"matmul", "conv2d", "attention"}) {
    const sim::Counters before = sim::counters();
    const ConformanceReport report = run_conformance(backend, {}, op);
    EXPECT_EQ(report.failed() + report.declined(), 0) << to_text(report);
    EXPECT_EQ(sim::counters().matmuls, before.matmuls);
    EXPECT_EQ(sim::counters().convolutions, before.convolutions);
    EXPECT_EQ(sim::counters().operation_graphs, before.operation_graphs);
    for (const OpConformance& o : report.ops) {
      const bool library = std::ranges::any_of(o.kernels, [](const std::string& k) { return !k.starts_with("cuda_"); });
      EXPECT_TRUE(library) << o.op << " did not go through the library's candidate";
    }
  }
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

const std::vector<std::string> kLibraries{"LD_LIBRARY_PATH=" LATHE_CUDA_SIM_LIBS, "LATHE_CACHE_DIR=" LATHE_SIM_CACHE};

test::Outcome train_cnn(const std::string& out, const std::string& device, const std::vector<std::string>& env,
                        const std::vector<std::string>& more) {
  std::vector<std::string> args{"train", "fashion_mnist", "--device", device, "--out", out, "--json", "--quiet"};
  std::vector<std::string> settings{"data.source=synthetic", "data.shape=[8, 8, 1]",  "data.train_samples=8",
                                    "data.test_samples=4",   "train.batch_size=4",    "train.steps=3",
                                    "train.log_every=1",     "model.channels=[4, 8]", "model.dense=16"};
  settings.insert(settings.end(), more.begin(), more.end());
  for (const std::string& s : settings) args.insert(args.end(), {"--set", s});
  std::vector<std::string> all = kLibraries;
  all.insert(all.end(), env.begin(), env.end());
  return test::run_lathe(args, all);
}

TEST(CudaTrainFallback, TheRunGoesOnAndSaysSo) {
  for (const char* precision : {"f32", "f16"}) {
    const test::TempDir dir;
    const std::string set = std::string("train.precision=") + precision;
    const auto cpu = train_cnn(dir.path("cpu"), "cpu", {}, {set});
    ASSERT_EQ(cpu.code, 0) << cpu.err;
    const auto r =
        train_cnn(dir.path("cuda"), "cuda", {"LATHE_CUDA_SIM_NO_ENGINE=1", "LATHE_CUDA_SIM_NO_ALGORITHM=1"}, {set});
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(r.err.find("cuda_sim:"), std::string::npos) << r.err;
    const auto j = nlohmann::json::parse(r.out);
    EXPECT_EQ(j["memory_predicted"], j["memory_allocated"]);
    ASSERT_EQ(j["device_notes"].size(), 2u) << r.out;
    for (size_t i = 0; i < 2; ++i) {
      const std::string note = j["device_notes"][i];
      EXPECT_TRUE(note.starts_with(i == 0 ? "cuBLASLt has nothing for " : "cuDNN has nothing for ")) << note;
      EXPECT_NE(note.find("own kernels run"), std::string::npos) << note;
    }
    const auto expected = test::losses(dir.path("cpu")), actual = test::losses(dir.path("cuda"));
    ASSERT_EQ(actual.size(), 3u);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(actual[i], expected[i], (precision == std::string("f32") ? 1e-3 : 2e-2) * (1 + expected[i])) << i;
  }
}

// Heads that were too wide for the own text once.
TEST(CudaTrainFallback, AttentionOfWideHeads) {
  const test::TempDir dir;
  for (const std::string device : {"cpu", "cuda"}) {
    std::vector<std::string> args{"train", "gpt_tiny",       "--device", device,
                                  "--out", dir.path(device), "--json",   "--quiet"};
    for (const char* set :
         {"data.path=", "model.layers=1", "model.heads=2", "model.width=144", "model.sequence=12", "train.batch_size=2",
          "data.test_samples=4", "data.train_samples=8", "train.steps=2", "train.log_every=1", "train.precision=bf16"})
      args.insert(args.end(), {"--set", set});
    const auto r = test::run_lathe(args, {kLibraries[0], kLibraries[1], "LATHE_CUDA_SIM_NO_ENGINE=1"});
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(r.err.find("cuda_sim:"), std::string::npos) << r.err;
    const auto j = nlohmann::json::parse(r.out);
    EXPECT_EQ(j["memory_predicted"], j["memory_allocated"]);
    if (device == "cpu") continue;
    ASSERT_EQ(j["device_notes"].size(), 1u) << r.out;
    const std::string note = j["device_notes"][0];
    for (const char* part : {"cuDNN has nothing for ", "attention of bf16[2, 2, 12, 72]", "own kernels run"})
      EXPECT_NE(note.find(part), std::string::npos) << part << " in: " << note;
  }
  const auto expected = test::losses(dir.path("cpu")), actual = test::losses(dir.path("cuda"));
  ASSERT_EQ(actual.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(actual[i], expected[i], 2e-2 * (1 + expected[i])) << i;
  // It is said beforehand, too.
  const auto plan = test::run_lathe(
      {"plan", "gpt_tiny", "--device", "cuda", "--nodes", "--set", "data.path=", "--set", "train.precision=bf16"},
      {kLibraries[0], kLibraries[1]});
  EXPECT_NE(plan.out.find("cuda_direct takes over"), std::string::npos) << plan.out;
}

// A card from before bf16 and TF32: its convolutions in bf16 are planned without cuDNN, and nothing asks for TF32.
TEST(CudaTrainFallback, AnOlderCard) {
  const test::TempDir dir;
  const auto cpu = train_cnn(dir.path("cpu"), "cpu", {}, {"train.precision=bf16"});
  ASSERT_EQ(cpu.code, 0) << cpu.err;
  const auto r =
      train_cnn(dir.path("cuda"), "cuda", {"LATHE_CUDA_SIM_CAPABILITY=75", "LATHE_TF32=1"}, {"train.precision=bf16"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err.find("cuda_sim:"), std::string::npos) << r.err;
  EXPECT_TRUE(nlohmann::json::parse(r.out)["device_notes"].empty()) << r.out;
  const auto expected = test::losses(dir.path("cpu")), actual = test::losses(dir.path("cuda"));
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(actual[i], expected[i], 2e-2 * (1 + expected[i])) << i;

  const auto old =
      test::run_lathe({"devices", "--no-measure"}, {kLibraries[0], kLibraries[1], "LATHE_CUDA_SIM_CAPABILITY=70"});
  EXPECT_NE(old.out.find("compute capability 7.0; 7.5 or newer is needed"), std::string::npos) << old.out;
}

std::vector<double> loss_scales(const std::string& run) {
  std::vector<double> out;
  std::istringstream lines(test::read_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (const auto j = nlohmann::json::parse(line); j.contains("loss_scale")) out.push_back(j["loss_scale"]);
  return out;
}

// The scale of the loss is halved and doubled on the card, while the step is one recorded graph.
TEST(CudaTrainFallback, LossScaleAdaptsOnTheCard) {
  const test::TempDir dir;
  for (const std::string device : {"cpu", "cuda"}) {
    const auto r = train_cnn(dir.path(device), device, {},
                             {"train.precision=f16", "train.loss_scale=16777216", "train.loss_scale_growth=2",
                              "train.steps=16", "optimizer.name=adam"});
    ASSERT_EQ(r.code, 0) << r.err;
  }
  const auto expected = loss_scales(dir.path("cpu")), actual = loss_scales(dir.path("cuda"));
  ASSERT_EQ(actual.size(), 16u);
  EXPECT_EQ(actual, expected);
  EXPECT_LT(actual[15], actual[0]);
  EXPECT_FALSE(std::ranges::is_sorted(actual, std::greater())) << "it grows, too";
  const auto want = test::losses(dir.path("cpu")), got = test::losses(dir.path("cuda"));
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(got[i], want[i], 2e-2 * (1 + want[i])) << i;
}

// Others hold all but a little of the card's memory: nothing is allocated, and the message says what would fit.
TEST(CudaTrainFallback, TooLittleFreeMemory) {
  const test::TempDir dir;
  constexpr int64_t kCard = int64_t{2} << 30, kFree = 1 << 20;
  const std::string taken = "LATHE_CUDA_SIM_TAKEN=" + std::to_string(kCard - kFree);
  const std::vector<std::string> large{"train.batch_size=256", "data.train_samples=256", "train.steps=1"};
  const auto r = train_cnn(dir.path("run"), "cuda", {taken}, large);
  EXPECT_EQ(r.code, 71) << r.err;
  for (const char* part :
       {"1048576 of its 2147483648 bytes of memory are free", "the run needs ", "train.batch_size = "})
    EXPECT_NE(r.err.find(part), std::string::npos) << part << " in: " << r.err;
  // The batch that it names does.
  const std::string key = "train.batch_size = ";
  const size_t at = r.err.find(key);
  ASSERT_NE(at, std::string::npos);
  const int64_t fits = std::stoll(r.err.substr(at + key.size()));
  EXPECT_GT(fits, 8);
  const auto smaller = train_cnn(dir.path("smaller"), "cuda", {taken},
                                 {large[1], large[2], "train.batch_size=" + std::to_string(fits),
                                  "train.eval_batch=" + std::to_string(std::min<int64_t>(fits, 16))});
  EXPECT_EQ(smaller.code, 0) << smaller.err;
}

}  // namespace
}  // namespace lathe
