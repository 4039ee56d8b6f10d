// Recipes on an OpenCL device, through the same Programs, arena, staging and lanes as on the CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
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
                              "train.steps=100", "--set", "train.log_every=1", "--set", "data.test_samples=1000"});
    ASSERT_EQ(r.code, 0) << r.err;
    const auto j = nlohmann::json::parse(r.out);
    EXPECT_GT(j["test_accuracy"].get<double>(), 0.7) << device;
    EXPECT_EQ(j["memory_predicted"], j["memory_allocated"]) << device;
  }
  const auto cpu = losses(dir.path("cpu")), opencl = losses(dir.path("opencl"));
  ASSERT_EQ(cpu.size(), 100u);
  ASSERT_EQ(opencl.size(), 100u);
  // Rounding differs between the devices, and training amplifies it step by step.
  for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(opencl[i], cpu[i], 1e-4 * (1 + cpu[i])) << "step " << i + 1;
  for (size_t i = 10; i < 20; ++i) EXPECT_NEAR(opencl[i], cpu[i], 5e-3 * (1 + cpu[i])) << "step " << i + 1;
}

// A cnn and a gpt train on the device (opencl_families_test.cpp: the other recipes): the first steps agree with the
// cpu. On a target clamped to a small device the arena lies in several segments, and the bits are the same. The wide
// form of the kernels, which GPUs run, agrees as well: with groups of 256 work-items in one recipe, of 64 in the other.
TEST_F(OpenCl, TrainsConvolutionsAndAttentionLikeTheCpu) {
  struct Twin {
    std::vector<std::string> recipe;
    std::string items, allocation;  // of the wide form; bytes, less than the arena
  };
  std::vector<Twin> twins{
      {{"fashion_mnist", "--set", "train.batch_size=32", "--set", "train.eval_batch=32", "--set",
        "data.train_samples=640", "--set", "data.test_samples=200", "--set", "model.channels=[8,16]", "--set",
        "model.dense=32"},
       "64",
       "1048576"},
      {{"gpt_tiny", "--set", "data.path=", "--set", "model.layers=1", "--set", "model.width=32", "--set",
        "model.sequence=32", "--set", "train.batch_size=4", "--set", "data.test_samples=8"},
       "256",
       "262144"}};
  if (!all_tests()) twins.pop_back();  // half a minute of compilation
  const TempDir dir;
  for (const auto& [recipe, items, allocation] : twins) {
    const std::string clamp = "LATHE_OPENCL_LIMITS=256,32768," + allocation;
    const std::map<std::string, std::vector<std::string>> forms{
        {"cpu", {}},
        {"opencl", {}},
        {"clamped", {clamp}},
        {"wide", {"LATHE_OPENCL_FORM=wide", "LATHE_OPENCL_LIMITS=" + items + ",32768," + allocation}}};
    std::vector<std::string> plan{"plan"};
    plan.insert(plan.end(), recipe.begin(), recipe.end());
    plan.insert(plan.end(), {"--device", "opencl", "--json"});
    EXPECT_GE(nlohmann::json::parse(run_lathe(plan, {clamp}).out)["segments"].size(), 3u)
        << "the clamp reaches no limit";
    std::map<std::string, std::vector<double>> all;
    for (const auto& [name, env] : forms) {
      const std::string out = dir.path(recipe[0] + name);
      std::vector<std::string> args{"train"};
      args.insert(args.end(), recipe.begin(), recipe.end());
      args.insert(args.end(), {"--set", "train.steps=8", "--set", "train.log_every=1", "--quiet", "--device",
                               name == "cpu" ? "cpu" : "opencl", "--out", out});
      const auto r = run_lathe(args, env);
      ASSERT_EQ(r.code, 0) << recipe[0] << " " << name << ": " << r.err;
      all[name] = losses(out);
      ASSERT_EQ(all[name].size(), 8u) << name;
    }
    EXPECT_EQ(all["clamped"], all["opencl"]);
    EXPECT_NE(all["wide"], all["opencl"]) << "another order of sums";
    for (const char* form : {"opencl", "wide"})
      for (size_t i = 0; i < 8; ++i)
        EXPECT_NEAR(all[form][i], all["cpu"][i], 2e-3 * (1 + all["cpu"][i]))
            << recipe[0] << " " << form << " step " << i + 1;
  }
}

// Two batches on the device need 5120 bytes: no allocation may be larger than 4096.
TEST_F(OpenCl, StagingKeepsToTheLargestAllocation) {
  const TempDir dir;
  for (const char* allocation : {"4096", "1000000"}) {
    std::vector<std::string> args{"train", "mlp", "--device", "opencl", "--quiet", "--out", dir.path(allocation)};
    for (const char* s : {"data.source=synthetic", "data.shape=[4,4,1]", "data.classes=4", "data.train_samples=120",
                          "data.test_samples=16", "train.batch_size=60", "model.hidden=[8]", "train.steps=4",
                          "train.log_every=1", "train.eval_every=0"})
      args.insert(args.end(), {"--set", s});
    const auto r = run_lathe(args, {fmt::format("LATHE_OPENCL_LIMITS=256,32768,{}", allocation)});
    ASSERT_EQ(r.code, 0) << allocation << ": " << r.err;
  }
  EXPECT_EQ(losses(dir.path("4096")).size(), 4u);
  EXPECT_EQ(losses(dir.path("4096")), losses(dir.path("1000000")));
}

// A device that is too small is refused with what it lacks, before anything runs.
TEST_F(OpenCl, TooSmallADeviceIsRefused) {
  struct Case {
    const char *limits, *form;
    int code;
    std::vector<const char*> parts;
  };
  for (const Case& c : std::vector<Case>{
           {"1,1,1", "narrow", 64, {"LATHE_OPENCL_LIMITS", "at least 4096", "1,1,1"}},
           {"256,32768,1000000x", "narrow", 64, {"LATHE_OPENCL_LIMITS", "got 256,32768,1000000x"}},
           {"256,32768,1000000,7", "narrow", 64, {"LATHE_OPENCL_LIMITS", "got 256,32768,1000000,7"}},
           {"256,32768", "narrow", 64, {"LATHE_OPENCL_LIMITS", "got 256,32768"}},
           {"256,16384,1000000", "narrow", 71, {"opencl:0", "16384 bytes of local memory", "32768"}},
           {"32,32768,1000000", "wide", 71, {"opencl:0", "groups of 32 work-items; 64 are needed"}},
       }) {
    const auto r =
        run_lathe({"selftest", "--device", "opencl", "--op", "iota"},
                  {fmt::format("LATHE_OPENCL_LIMITS={}", c.limits), fmt::format("LATHE_OPENCL_FORM={}", c.form)});
    EXPECT_EQ(r.code, c.code) << c.limits << ": " << r.err;
    for (const char* part : c.parts) EXPECT_NE(r.err.find(part), std::string::npos) << part << " in: " << r.err;
  }
}

bool is_pocl() {
  return find_backend("opencl").devices()[0].description.find("Portable Computing Language") != std::string::npos;
}

// Every file of the kernel cache: cut, emptied, or with one byte changed in its middle.
TEST_F(OpenCl, ADamagedKernelCacheIsBuiltAnew) {
  const TempDir dir;
  const std::string cache = dir.path("cache");
  const auto run = [&] {
    return run_lathe({"selftest", "--device", "opencl", "--op", "iota"},
                     {"LATHE_CACHE_DIR=" + cache, "POCL_CACHE_DIR="});
  };
  ASSERT_EQ(run().code, 0);
  const auto files = [&] {
    std::map<std::string, std::string> all;
    for (const auto& f : std::filesystem::recursive_directory_iterator(cache))
      if (f.is_regular_file()) all[f.path()] = read_file(f.path());
    return all;
  };
  const auto whole = files();
  ASSERT_EQ(whole.size(), 1u);
  for (int damage = 0; damage < 3; ++damage) {
    for (const auto& [name, text] : whole) {
      if (damage < 2)
        std::filesystem::resize_file(name, damage == 0 ? 0 : text.size() / 2);
      else {
        std::fstream f(name, std::ios::in | std::ios::out | std::ios::binary);
        f.seekp(static_cast<std::streamoff>(text.size() / 2));
        f.put(static_cast<char>(text[text.size() / 2] ^ 1));
      }
    }
    const auto r = run();
    EXPECT_EQ(r.code, 0) << damage << ": " << r.err;
    const auto now = files();
    ASSERT_EQ(now.size(), 1u) << damage;
    EXPECT_EQ(now.begin()->first, whole.begin()->first);
    EXPECT_GT(now.begin()->second.size(), whole.begin()->second.size() * 9 / 10) << "it was not rewritten";
  }
  const auto before = std::filesystem::last_write_time(whole.begin()->first);
  EXPECT_EQ(run().code, 0);
  EXPECT_EQ(std::filesystem::last_write_time(whole.begin()->first), before) << "a whole file was not used";
}

// Many ranks of a machine start on an empty cache, and again on a full one.
TEST_F(OpenCl, ManyStartAtOnce) {
  const TempDir dir;
  constexpr int kRanks = 4;
  const auto start = [&](const std::string& when) {
    std::vector<std::future<Outcome>> ranks;
    for (int i = 0; i < kRanks; ++i)
      ranks.push_back(std::async(std::launch::async, [&, i] {
        return run_lathe(
            {"train", "mlp", "--device", "opencl", "--quiet", "--out", dir.path(fmt::format("{}{}", when, i)), "--set",
             "data.source=synthetic", "--set", "data.train_samples=64", "--set", "train.batch_size=16", "--set",
             "model.hidden=[8]", "--set", "train.steps=3", "--set", "train.log_every=1"},
            {"LATHE_CACHE_DIR=" + dir.path("cache"), "POCL_CACHE_DIR="});
      }));
    std::vector<std::vector<double>> all;
    for (int i = 0; i < kRanks; ++i) {
      const Outcome r = ranks[static_cast<size_t>(i)].get();
      EXPECT_EQ(r.code, 0) << r.err;
      all.push_back(losses(dir.path(fmt::format("{}{}", when, i))));
    }
    return all;
  };
  const auto cold = start("cold");
  ASSERT_EQ(cold[0].size(), 3u);
  for (const auto& l : cold) EXPECT_EQ(l, cold[0]);
  EXPECT_EQ(start("warm"), cold);
}

// A folder of PoCL's that the user has chosen is PoCL's: it ends the program when a file there is damaged. Lathe says
// which folder that is, and without it all is well.
TEST_F(OpenCl, ADamagedCacheOfTheDriverIsNamed) {
  if (!is_pocl()) GTEST_SKIP() << "not PoCL";
  const TempDir dir;
  const std::string cache = dir.path("pocl");
  const auto run = [&] {
    std::filesystem::create_directories(cache);
    return run_lathe({"selftest", "--device", "opencl", "--op", "iota"}, {"POCL_CACHE_DIR=" + cache});
  };
  ASSERT_EQ(run().code, 0);
  int damaged = 0;
  for (const auto& f : std::filesystem::recursive_directory_iterator(cache))
    if (f.path().extension() == ".so") {
      std::filesystem::resize_file(f.path(), 100);
      ++damaged;
    }
  ASSERT_GT(damaged, 0);
  const auto r = run();
  EXPECT_NE(r.code, 0);
  EXPECT_NE(r.err.find("delete " + cache), std::string::npos) << r.err;
  std::filesystem::remove_all(cache);
  EXPECT_EQ(run().code, 0);
}

// tune-device stores what it measured, the next start takes what is stored, were it the worse, and a damaged file is
// passed by with a warning.
TEST_F(OpenCl, TunedTilesAreTaken) {
  const TempDir dir;
  const auto tune = [&] {
    return run_lathe({"bench", "tune-device", "--rounds", "1", "--seconds", "0", "--json"},
                     {"LATHE_CACHE_DIR=" + dir.path()});
  };
  const auto first = tune();
  ASSERT_EQ(first.code, 0) << first.err;
  const auto j = nlohmann::json::parse(first.out);
  ASSERT_EQ(j["parts"].size(), 2u) << "attention, products; the narrow form has no groups of loops";
  for (const auto& part : j["parts"]) {
    EXPECT_EQ(part["rows"].size(), 2u);
    EXPECT_GT(part["left_out"].get<int>(), 0);
    EXPECT_GT(part["rows"][0]["rate"].get<double>(), 0);
  }
  const std::string file = j["stored"];
  ASSERT_TRUE(std::filesystem::exists(file));
  const auto second = nlohmann::json::parse(tune().out);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(second["parts"][i]["before"], j["parts"][i]["taken"]);
  std::string text = read_file(file);
  const std::string rows = j["parts"][0]["rows"][1]["tiles"];  // "16 rows": compiled by now
  for (const auto& [name, value] :
       {std::pair<std::string, std::string>{"rows_per ", "144"}, {"attention_rows ", rows.substr(0, 2)}}) {
    const size_t at = text.find(name);
    ASSERT_NE(at, std::string::npos) << text;
    text.replace(at, text.find('\n', at) - at, name + value);
  }
  std::ofstream(file) << text;
  const auto other = nlohmann::json::parse(tune().out)["parts"];
  EXPECT_NE(other[1]["before"].get<std::string>().find("144 rows per panel"), std::string::npos) << other;
  EXPECT_EQ(other[0]["before"], rows);
  std::filesystem::resize_file(file, 20);
  const auto third = run_lathe({"selftest", "--device", "opencl", "--op", "iota"}, {"LATHE_CACHE_DIR=" + dir.path()});
  EXPECT_EQ(third.code, 0) << third.err;
  EXPECT_NE(third.err.find("warning: " + file), std::string::npos) << third.err;
}

TEST_F(OpenCl, ResumesAndAccumulates) { expect_resume_keeps_bits("opencl"); }

}  // namespace
}  // namespace lathe::test
