// What can be predicted beside classes: numbers from a table, the class of each pixel, an image without noise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
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
  for (const char* part : {"<h2>Predictions</h2>", "<h2>R2 on test data</h2>", "test RMSE"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  // The fifth row is the first test row.
  std::ifstream again(dir.path("table.csv"));
  std::string line;
  for (int i = 0; i < 6; ++i) std::getline(again, line);
  const double truth = std::stod(line.substr(line.rfind(',') + 1));
  EXPECT_NEAR(p[0]["values"][0].get<double>(), truth, 300);

  // New rows, without the price and in another order, get it in the same units.
  std::ofstream(dir.path("new.tsv")) << "kind\tb\ta\none\t100\t900\ntwo\t900\t100\n";
  const auto rows = json_of({"predict", dir.path("run"), dir.path("new.tsv"), "--json"});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["input"], dir.path("new.tsv") + ":2");
  EXPECT_NEAR(rows[0]["values"][0].get<double>(), 3.0 * 900 - 2.0 * 100 + 500, 300);
  EXPECT_NEAR(rows[1]["values"][0].get<double>(), 3.0 * 100 - 2.0 * 900, 300);
  const Outcome shown = run_lathe({"predict", dir.path("run"), dir.path("new.tsv"), "test:0"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(std::count(shown.out.begin(), shown.out.end(), '\n'), 3);
  // The same row as the table has it: the same bits.
  std::ofstream(dir.path("same.csv")) << "a,kind,b,price\n" << line << "\n";
  EXPECT_EQ(json_of({"predict", dir.path("run"), dir.path("same.csv"), "--json"})[0]["values"], p[0]["values"]);
  std::ofstream(dir.path("wrong.csv")) << "a,kind,c\n1,one,2\n";
  const Outcome wrong = run_lathe({"predict", dir.path("run"), dir.path("wrong.csv")});
  EXPECT_EQ(wrong.code, 65);
  EXPECT_NE(wrong.err.find("wrong.csv:1: column \"c\" is none of"), std::string::npos) << wrong.err;
  EXPECT_EQ(run_lathe({"predict", dir.path("run"), "test:0", "--out", dir.path("x")}).code, 64);
  const Outcome other = run_lathe({"predict", dir.path("run"), "test:0", "--set", "data.label=a"});
  EXPECT_EQ(other.code, 78) << other.out;
  EXPECT_NE(other.err.find("--set data.label: the net of"), std::string::npos) << other.err;

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
  // Pictures of the predictions, and of one of these pictures again.
  const auto masks = json_of({"predict", dir.path("mask"), "test:0-2", "--out", dir.path("pictures"), "--json"});
  ASSERT_EQ(masks.size(), 3u);
  for (const auto& m : masks) {
    EXPECT_EQ(read_file(m["picture"]).substr(1, 3), "PNG");
    ASSERT_EQ(m["shares"].size(), 2u);
    EXPECT_NEAR(m["shares"][0].get<double>() + m["shares"][1].get<double>(), 1, 1e-9);
  }
  EXPECT_EQ(masks[1]["picture"], dir.path("pictures/test-1-mask.png"));
  const Outcome again = run_lathe(
      {"predict", dir.path("mask"), dir.path("pictures/test-0-mask.png"), dir.path("pictures/test-0-mask.png")});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(std::filesystem::exists(dir.path("mask/predictions/test-0-mask-mask.png")));
  EXPECT_TRUE(std::filesystem::exists(dir.path("mask/predictions/test-0-mask-2-mask.png")));
  const auto images = json_of({"predict", dir.path("image"), "test:0", "--json"});
  EXPECT_EQ(images[0]["picture"], dir.path("image/predictions/test-0-image.png"));
  // 28 x 28, as the IHDR chunk says it.
  EXPECT_EQ(read_file(images[0]["picture"]).substr(16, 8), std::string("\0\0\0\x1c\0\0\0\x1c", 8));
  const Outcome small = run_lathe({"predict", dir.path("image"), dir.path("pictures/test-0-mask.png")});
  EXPECT_EQ(small.code, 65);
  EXPECT_NE(small.err.find("expected an image of [28, 28, 1]"), std::string::npos) << small.err;
}

TEST(Targets, ClassesOfATableHaveTheirNames) {
  const TempDir dir;
  std::ofstream csv(dir.path("table.csv"));
  csv << "x,sign\n";
  for (int i = -100; i < 100; ++i) csv << i << (i < 0 ? ",minus\n" : ",plus\n");
  csv.close();
  std::ofstream(dir.path("table.toml")) << "[data]\nsource = \"csv\"\npath = \"" + dir.path("table.csv") +
                                               "\"\nclasses = 2\n[model]\nhidden = [8]\n[optimizer]\nname = "
                                               "\"adam\"\nlr = 0.05\n[train]\nepochs = 10\nbatch_size = 16\n";
  json_of({"train", dir.path("table.toml"), "--out", dir.path("run"), "--json"});
  std::ofstream(dir.path("new.csv")) << "x\n-90\n90\n";
  const auto p = json_of({"predict", dir.path("run"), dir.path("new.csv"), "--json"});
  ASSERT_EQ(p.size(), 2u);
  EXPECT_EQ(p[0]["name"], "minus");
  EXPECT_EQ(p[1]["name"], "plus");
  EXPECT_EQ(p[1]["label"], 1);
}

TEST(Targets, MissingDataSaysHowToGetThem) {
  const TempDir dir;
  for (const auto& [recipe, name] : {std::pair{"diamonds", "diamonds"},
                                     {"devices_lstm", "ucr"},
                                     {"clipart_unet", "openclipart"},
                                     {"shakespeare", "shakespeare"}}) {
    const std::string folder = dir.path("nothing/") + name;
    const Outcome o = run_lathe({"train", recipe, "--out", dir.path("run"), "--set", "data.path=" + folder + "/a"});
    EXPECT_EQ(o.code, 66) << recipe;
    EXPECT_NE(o.err.find("`lathe fetch " + std::string(name) + " " + folder + "` gets it"), std::string::npos) << o.err;
  }
  const Outcome all = run_lathe({"fetch"});
  EXPECT_EQ(all.code, 0) << all.err;
  for (const char* name : {"diamonds", "ucr", "openclipart", "shakespeare"})
    EXPECT_NE(all.out.find(std::string("\n  ") + name), std::string::npos) << all.out;
  EXPECT_EQ(run_lathe({"fetch", "diamond"}).code, 64);
}

}  // namespace
}  // namespace lathe::test
