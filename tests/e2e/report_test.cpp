// report.html of a real run.
#include <gtest/gtest.h>

#include <csignal>
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
  EXPECT_EQ(run_lathe({"report", run}).code, 0);
  EXPECT_NE(read_file(run + "/report.html").find("is no object with a step and was left out."), std::string::npos);
  EXPECT_EQ(run_lathe({"report", dir.path("none")}).code, 66);
}

std::vector<std::string> small_run(const std::string& recipe, const std::string& out,
                                   const std::vector<std::string>& sets) {
  std::vector<std::string> args{"train", recipe, "--out", out, "--set", "data.source=synthetic", "--set", "device=cpu"};
  for (const std::string& s : sets) args.insert(args.end(), {"--set", s});
  return args;
}

void expect_parts(const std::string& html, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(html.find(part), std::string::npos) << part;
}

TEST(Report, OfARunThatDiverges) {
  const TempDir dir;
  const std::string run = dir.path("run");
  const Outcome o =
      run_lathe(small_run("mlp", run,
                          {"optimizer.lr=1000", "train.steps=50", "data.train_samples=128", "data.test_samples=64",
                           "train.batch_size=32", "model.hidden=[16,16,16,16,16,16]"}));
  ASSERT_EQ(o.code, 65) << o.out << o.err;
  const std::string at_once = read_file(run + "/report.html");
  expect_parts(at_once, {"<p class=note>The run ended at step ", "not both finite", "<h2>Loss</h2>",
                         "<h2>Memory over one step</h2>", "<h2>Recipe</h2>", "optimizer.<wbr>lr", "Not measured"});
  EXPECT_EQ(at_once.find("<h2>Roofline</h2>"), std::string::npos) << "needs measuring";
  // Later: what needs no checkpoint is there, what needs one says so.
  ASSERT_EQ(run_lathe({"report", run}).code, 0);
  expect_parts(read_file(run + "/report.html"),
               {"<h2>Predictions</h2><p class=missing>", "no valid checkpoint", "<h2>Time per node</h2><p>One step"});
}

TEST(Report, OfARunThatIsStopped) {
  const TempDir dir;
  const std::string run = dir.path("run");
  Running r(small_run("mlp", run, {"train.epochs=100000", "data.train_samples=256", "data.test_samples=64"}));
  ASSERT_TRUE(wait_for_text(run + "/metrics.jsonl", "{\"step\":10,", 30));  // there is something to stop
  r.signal(SIGTERM);
  ASSERT_EQ(r.wait(), 75);
  expect_parts(read_file(run + "/report.html"),
               {"<p class=note>The run was stopped by a signal at step ", "<h2>Loss</h2>", "Not measured", "Recipe"});
  // An error before anything began changes no page.
  const std::string before = read_file(run + "/report.html");
  EXPECT_NE(run_lathe(small_run("mlp", run, {})).code, 0) << "holds checkpoints";
  EXPECT_EQ(read_file(run + "/report.html"), before);
}

TEST(Report, WithoutTheData) {
  const TempDir dir;
  const std::string table = dir.path("table.csv"), run = dir.path("run");
  {
    std::ofstream csv(table);
    csv << "a,b,class\n";
    for (int i = 0; i < 64; ++i)
      csv << i << "," << i % 7 << "," << (i % 2 ? "ein langer Name für eins" : "zwei") << "\n";
  }
  std::ofstream(dir.path("table.toml"))
      << "name = \"table\"\ndevice = \"cpu\"\n[data]\nsource = \"csv\"\nlabel = \"class\"\nclasses = 2\n"
      << "path = \"" << table << "\"\n[model]\nfamily = \"mlp\"\nhidden = [8]\n"
      << "[train]\nsteps = 6\nbatch_size = 8\n";
  const Outcome o = run_lathe({"train", dir.path("table.toml"), "--out", run});
  ASSERT_EQ(o.code, 0) << o.err;
  expect_parts(read_file(run + "/report.html"),
               {"<title>ein langer Name für eins taken for", "<h2>Confusion matrix</h2>"});
  std::filesystem::remove(table);
  std::ofstream(run + "/metrics.jsonl", std::ios::app) << "{\"step\":7,\"lo";  // as a killed run leaves it
  const Outcome later = run_lathe({"report", run});
  ASSERT_EQ(later.code, 0) << later.err;
  expect_parts(read_file(run + "/report.html"),
               {"<h2>Loss</h2>", "the last line is cut and was left out;", "<h2>Memory over one step</h2>",
                "<h2>Predictions</h2><p class=missing>", "table.<wbr>csv",
                "<h2>Time per node</h2><p class=missing>Cannot be made: "});
}

TEST(Report, ShowsEveryProgramOfAStep) {
  const TempDir dir;
  const std::string run = dir.path("run");
  const Outcome o = run_lathe(small_run("mlp", run,
                                        {"train.steps=3", "train.accumulate=4", "data.train_samples=256",
                                         "data.test_samples=32", "train.batch_size=16", "model.hidden=[16]"}));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_parts(read_file(run + "/report.html"),
               {"Memory over one of the 4 micro-batches of a step", "Memory over the update that ends a step",
                "4 micro-batches of", "and the update of", "<td>update: ", "micro-<wbr>batch: "});
}

TEST(Report, TimesAddUp) {
  const TempDir dir;
  const std::string run = dir.path("run");
  const Outcome o = run_lathe(small_run(
      "fashion_resnet", run, {"train.steps=2", "data.train_samples=32", "data.test_samples=8", "train.batch_size=8"}));
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string html = read_file(run + "/report.html");
  const std::string table = html.substr(html.find("<h2>Time per node</h2>"));
  EXPECT_NE(table.find("The 40 longest are shown"), std::string::npos);
  double shares = 0;
  int rows = 0;
  for (size_t i = table.find("<tr><td"); i != table.npos && i < table.find("</table>");
       i = table.find("<tr><td", i + 1)) {
    size_t at = i;
    for (int k = 0; k < 3; ++k) at = table.find("<td", at + 1);  // of the third cell
    shares += std::stod(table.substr(table.find('>', at) + 1));
    ++rows;
  }
  EXPECT_EQ(rows, 41);
  EXPECT_NEAR(shares, 100, 2.5) << "each is rounded to a tenth";
}

TEST(Report, CountsRefusedSteps) {
  const TempDir dir;
  const std::string run = dir.path("run");
  const Outcome o = run_lathe(small_run(
      "mlp", run,
      {"optimizer.lr=1000", "train.steps=8", "train.on_nan=skip", "train.nan_patience=100", "data.train_samples=128",
       "data.test_samples=64", "train.batch_size=32", "model.hidden=[16,16,16,16,16,16]"}));
  ASSERT_EQ(o.code, 0) << o.out << o.err;
  const std::string html = read_file(run + "/report.html");
  expect_parts(html, {"<span>steps refused</span>", "<b>no number</b><span>test accuracy</span>",
                      "the outputs are no numbers", "no number, is "});
  EXPECT_EQ(html.find("nan %"), std::string::npos);
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
