// What can be predicted beside classes: numbers from a table, the class of each pixel, an image without noise.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "process.h"

namespace lathe::test {
namespace {

nlohmann::json json_of(const std::vector<std::string>& args) {
  const Outcome o = run_lathe(args);
  EXPECT_EQ(o.code, 0) << o.err;
  return nlohmann::json::parse(o.out, nullptr, false);
}

TEST(Targets, ATableIsLearned) {
  const TempDir dir;
  std::ofstream csv(dir.path("table.csv"));
  csv << "a,kind,b,price\n";
  // price = 3 a - 2 b, and 5 more for the one kind: a line, whatever the numbers are.
  uint32_t state = 1;
  const auto draw = [&] { return (state = state * 1664525 + 1013904223) >> 16 & 1023; };
  for (int i = 0; i < 1000; ++i) {
    const auto a = draw(), b = draw();
    const bool one = draw() & 1;
    csv << a << (one ? ",one," : ",two,") << b << "," << 3.0 * a - 2.0 * b + (one ? 500 : 0) << "\n";
  }
  csv.close();
  std::ofstream(dir.path("table.toml")) << "[data]\nsource = \"csv\"\npath = \"" + dir.path("table.csv") +
                                               "\"\ntarget = \"value\"\nlabel = \"price\"\n[model]\nhidden = [16]\n"
                                               "[optimizer]\nname = \"adam\"\nlr = 0.02\n[train]\nepochs = 30\n"
                                               "batch_size = 64\neval_every = 10\n";
  const auto j = json_of({"train", dir.path("table.toml"), "--out", dir.path("run"), "--json"});
  EXPECT_GT(j["test_r2"].get<double>(), 0.99);
  // Of a deviation of about 1090.
  EXPECT_LT(j["test_rmse"].get<double>(), 100);
  EXPECT_GT(j["test_rmse"].get<double>(), j["test_mae"].get<double>());
  EXPECT_TRUE(j["test_accuracy"].is_null());
  EXPECT_EQ(j["memory_predicted"], j["memory_allocated"]);
  const auto e = json_of({"eval", dir.path("run"), "--json"});
  EXPECT_EQ(e["r2"], j["test_r2"]);
  EXPECT_EQ(e["samples"], 200);
  EXPECT_FALSE(e.contains("accuracy"));
  const auto p = json_of({"predict", dir.path("run"), "test:0", "--json"});
  EXPECT_NE(read_file(dir.path("run/metrics.jsonl")).find("\"eval_r2\":"), std::string::npos);
  const std::string page = read_file(dir.path("run/report.html"));
  for (const char* part : {"<h2>Predictions</h2>", "<h2>r2 on test data</h2>", "test rmse"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  // The fifth row is the first test row.
  std::ifstream again(dir.path("table.csv"));
  std::string line;
  for (int i = 0; i < 6; ++i) std::getline(again, line);
  const double truth = std::stod(line.substr(line.rfind(',') + 1));
  EXPECT_NEAR(p[0]["values"][0].get<double>(), truth, 300);

  std::ofstream(dir.path("table.csv"), std::ios::app) << "1,one,x,2\n";
  const Outcome bad = run_lathe({"eval", dir.path("run")});
  EXPECT_EQ(bad.code, 65);
  EXPECT_NE(bad.err.find("table.csv:1002: column b: expected a number"), std::string::npos) << bad.err;
}

std::vector<std::string> unet(const std::string& out, std::vector<std::string> sets) {
  std::vector<std::string> args{"train", "clipart_unet", "--out", out, "--json"};
  sets.insert(sets.end(),
              {"model.channels=[8,16]", "train.batch_size=16", "train.eval_batch=20", "schedule.warmup_steps=5"});
  for (const std::string& set : sets) args.insert(args.end(), {"--set", set});
  return args;
}

TEST(Targets, MasksAndImages) {
  const TempDir dir;
  const auto mask =
      json_of(unet(dir.path("mask"), {"data.source=synthetic", "data.shape=[16,16,1]", "data.train_samples=128",
                                      "data.test_samples=40", "train.epochs=4"}));
  EXPECT_GT(mask["test_iou"].get<double>(), 0.8);
  EXPECT_GT(mask["test_accuracy"].get<double>(), 0.9);
  const auto image =
      json_of(unet(dir.path("image"), {"data.source=fashion_mnist", "data.path=", "data.target=image", "data.noise=40",
                                       "data.train_samples=256", "data.test_samples=40", "train.epochs=6"}));
  EXPECT_GT(image["test_psnr"].get<double>(), image["test_input_psnr"].get<double>() + 0.5);
  // Noise that leaves [0, 255] is cut off: half of it on black.
  EXPECT_NEAR(image["test_input_psnr"].get<double>(), 20 * std::log10(255.0 / 40), 3.0);
  for (const char* run : {"mask", "image"}) {
    const std::string page = read_file(dir.path(run) + "/report.html");
    EXPECT_NE(page.find("<h2>Test samples</h2>"), std::string::npos);
    EXPECT_NE(page.find("data:image/png;base64,"), std::string::npos);
    EXPECT_EQ(page.find("<h2>Confusion matrix</h2>"), std::string::npos);
  }
  EXPECT_EQ(run_lathe({"predict", dir.path("mask"), "test:0"}).code, 64);
}

TEST(Targets, MissingDataSaysHowToGetThem) {
  const TempDir dir;
  for (const char* recipe : {"diamonds", "devices_lstm", "clipart_unet"}) {
    const Outcome o =
        run_lathe({"train", recipe, "--out", dir.path("run"), "--set", "data.path=" + dir.path("nothing")});
    EXPECT_EQ(o.code, 66) << recipe;
    EXPECT_NE(o.err.find("tools/fetch-data"), std::string::npos) << o.err;
  }
}

}  // namespace
}  // namespace lathe::test
