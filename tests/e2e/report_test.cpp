// report.html of a real run.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "process.h"

namespace lathe::test {
namespace {

TEST(Report, ShowsARun) {
  const TempDir dir;
  const std::string run = dir.path("run");
  const Outcome o =
      run_lathe({"train", "fashion_mnist", "--out", run, "--set", "data.source=synthetic", "--set",
                 "data.train_samples=96", "--set", "data.test_samples=40", "--set", "model.channels=[4,6]", "--set",
                 "train.batch_size=16", "--set", "train.epochs=2", "--set", "train.log_every=1"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("report.html"), std::string::npos);
  const std::string html = read_file(run + "/report.html");
  for (const char* part : {"<h2>Loss</h2>", "<h2>Accuracy on test data</h2>", "<h2>Learning rate</h2>",
                           "<h2>Gradient norm</h2>", "<h2>Confusion matrix</h2>", "<h2>Memory over one step</h2>",
                           "<h2>What holds the peak</h2>", "<h2>Roofline</h2>", "<h2>Time per node</h2>",
                           "data:image/png;base64,", "test accuracy", "of 40 test samples", "conv1"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  // The page says of the checkpoint what the run said.
  const std::string summary = read_file(run + "/summary.json");
  const double accuracy = std::stod(summary.substr(summary.find("\"test_accuracy\": ") + 17));
  EXPECT_NE(html.find(std::to_string(static_cast<int>(accuracy * 40 + 0.5)) + " of 40 test samples"),
            std::string::npos);

  // By hand, elsewhere; the run stays as it was.
  EXPECT_EQ(run_lathe({"report", run, "--out", dir.path("page.html")}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(dir.path("page.html")));
  EXPECT_EQ(run_lathe({"eval", run}).code, 0);
  std::ofstream(run + "/metrics.jsonl", std::ios::app) << "not json\n";
  const Outcome bad = run_lathe({"report", run});
  EXPECT_EQ(bad.code, 65);
  EXPECT_NE(bad.err.find("metrics.jsonl:"), std::string::npos) << bad.err;
  EXPECT_EQ(run_lathe({"report", dir.path("none")}).code, 66);
}

TEST(Report, TextModelsToo) {
  const TempDir dir;
  const Outcome o = run_lathe({"train", "gpt_tiny", "--out", dir.path("run"), "--set", "data.path=", "--set",
                               "train.steps=4", "--set", "model.layers=1", "--set", "model.width=16", "--set",
                               "model.heads=2", "--set", "train.log_every=1"});
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string html = read_file(dir.path("run/report.html"));
  for (const char* part : {"<h2>Time per node</h2>", "<h2>What it writes</h2><p>", "<pre><span>"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
}

}  // namespace
}  // namespace lathe::test
