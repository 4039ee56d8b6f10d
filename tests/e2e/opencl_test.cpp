// The mlp recipe on an OpenCL device, through the same Programs, arena, staging and lanes as on the CPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "device_training.h"
#include "process.h"

namespace lathe::test {
namespace {

class OpenCl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (find_backend("opencl").devices().empty()) GTEST_SKIP() << find_backend("opencl").unavailable_reason();
  }
};

TEST_F(OpenCl, TrainsTheMlpRecipeLikeTheCpu) {
  const TempDir dir;
  for (const char* device : {"cpu", "opencl"}) {
    const auto r = run_lathe({"train", "mlp", "--device", device, "--json", "--out", dir.path(device), "--set",
                              "train.steps=200", "--set", "train.log_every=1", "--set", "data.test_samples=2000"});
    ASSERT_EQ(r.code, 0) << r.err;
    const auto j = nlohmann::json::parse(r.out);
    EXPECT_GT(j["test_accuracy"].get<double>(), 0.75) << device;
    EXPECT_EQ(j["memory_predicted"], j["memory_allocated"]) << device;
  }
  const auto cpu = losses(dir.path("cpu")), opencl = losses(dir.path("opencl"));
  ASSERT_EQ(cpu.size(), 200u);
  ASSERT_EQ(opencl.size(), 200u);
  // Rounding differs between the devices, and training amplifies it step by step.
  for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(opencl[i], cpu[i], 1e-4 * (1 + cpu[i])) << "step " << i + 1;
  for (size_t i = 10; i < 20; ++i) EXPECT_NEAR(opencl[i], cpu[i], 5e-3 * (1 + cpu[i])) << "step " << i + 1;
}

// Every recipe trains on the device: the first steps agree with the cpu, on a target clamped to a small device too.
TEST_F(OpenCl, TrainsTheOtherRecipesLikeTheCpu) {
  const TempDir dir;
  const std::vector<std::vector<std::string>> recipes{
      {"fashion_mnist", "--set", "train.batch_size=32", "--set", "data.train_samples=640", "--set",
       "data.test_samples=200", "--set", "model.channels=[8,16]", "--set", "model.dense=32"},
      {"gpt_tiny", "--set", "model.layers=1", "--set", "model.width=32", "--set", "model.sequence=32", "--set",
       "train.batch_size=4", "--set", "data.test_samples=8"}};
  for (const auto& recipe : recipes) {
    std::map<std::string, std::vector<double>> all;
    for (const std::string device : {"cpu", "opencl", "clamped"}) {
      std::vector<std::string> args{"train"};
      args.insert(args.end(), recipe.begin(), recipe.end());
      const std::string out = dir.path(recipe[0] + device);
      for (const char* a : {"--set", "train.steps=8", "--set", "train.log_every=1", "--quiet", "--device"})
        args.push_back(a);
      args.push_back(device == "cpu" ? "cpu" : "opencl");
      args.insert(args.end(), {"--out", out});
      if (device == "clamped") setenv("LATHE_OPENCL_LIMITS", "256,32768,536870912", 1);
      const auto r = run_lathe(args);
      unsetenv("LATHE_OPENCL_LIMITS");
      ASSERT_EQ(r.code, 0) << recipe[0] << " " << device << ": " << r.err;
      all[device] = losses(out);
    }
    ASSERT_EQ(all["cpu"].size(), 8u);
    ASSERT_EQ(all["opencl"].size(), 8u);
    EXPECT_EQ(all["clamped"], all["opencl"]);
    for (size_t i = 0; i < 8; ++i)
      EXPECT_NEAR(all["opencl"][i], all["cpu"][i], 2e-3 * (1 + all["cpu"][i])) << recipe[0] << " step " << i + 1;
  }
}

TEST_F(OpenCl, ResumesAndAccumulates) { expect_resume_keeps_bits("opencl"); }

}  // namespace
}  // namespace lathe::test
