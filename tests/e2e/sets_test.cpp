// Training, validation and test set: what each is for, in whole runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "loop/trainer.h"
#include "predict/predict.h"
#include "process.h"

namespace lathe {
namespace {

using nlohmann::json;
using test::read_file;
using test::run_lathe;
using test::TempDir;

// Rows of three classes, sorted by class, as many a table is.
std::string sorted_table(const TempDir& dir) {
  std::ofstream out(dir.path("sorted.csv"));
  out << "a,b,label\n";
  for (int c = 0; c < 3; ++c)
    for (int i = 0; i < 100; ++i) out << c + 0.01 * i << "," << c * c - 0.02 * i << ",kind" << c << "\n";
  return dir.path("sorted.csv");
}

std::vector<std::string> with_sets(std::vector<std::string> args, const Sets& sets) {
  for (const std::string& s : sets) {
    args.emplace_back("--set");
    args.push_back(s);
  }
  return args;
}

std::vector<json> lines_of(const std::string& run) {
  std::vector<json> out;
  std::istringstream text(read_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) out.push_back(json::parse(line));
  return out;
}

// A recipe file for it.
std::string table_file(const TempDir& dir) {
  std::ofstream(dir.path("table.toml")) << "data = { source = \"csv\", path = \"" << sorted_table(dir)
                                        << "\", classes = 3 }\n"
                                           "model = { family = \"mlp\", hidden = [8] }\n"
                                           "optimizer.lr = 0.05\n"
                                           "train = { batch_size = 16, log_every = 1 }\n";
  return dir.path("table.toml");
}

TEST(Sets, ASortedTableGivesEveryClassToEverySet) {
  const TempDir dir;
  const Dataset d = open_dataset(load_recipe(table_file(dir), {"data.validation=0.25"}));
  EXPECT_EQ(d.spec.train, 180);  // of 240: every fifth row is for testing
  EXPECT_EQ(d.spec.validation, 60);
  EXPECT_EQ(d.spec.test, 60);
  std::vector<int64_t> counts[3];
  size_t set = 0;
  for (const auto* s : {d.train.get(), d.validation.get(), d.test.get()}) {
    counts[set].assign(3, 0);
    for (int64_t i = 0; i < s->size(); ++i) ++counts[set][static_cast<size_t>(*s->label(i))];
    ++set;
  }
  EXPECT_EQ(counts[0], (std::vector<int64_t>{60, 60, 60}));
  EXPECT_EQ(counts[1], (std::vector<int64_t>{20, 20, 20}));
  EXPECT_EQ(counts[2], (std::vector<int64_t>{20, 20, 20}));
  EXPECT_TRUE(missing_classes(d, {}).empty());
}

TEST(Sets, EveryNumberSaysItsSet) {
  const TempDir dir;
  const std::string run = dir.path("run");
  const Sets sets{"train.epochs=3", "data.validation=0.25", "checkpoint.best=true"};
  const auto t = run_lathe(with_sets({"train", table_file(dir), "--out", run}, sets));
  ASSERT_EQ(t.code, 0) << t.err;
  for (const char* part :
       {"180 training samples, 60 validation, 60 test", "epoch 1: validation loss", "epoch 3: validation loss",
        "epoch 3: test loss", "  validation accuracy", "  test accuracy", "best on validation"})
    EXPECT_NE(t.out.find(part), std::string::npos) << part << t.out;
  EXPECT_EQ(t.out.find("epoch 1: test"), std::string::npos);
  EXPECT_EQ(t.out.find("warning"), std::string::npos) << t.out;
  int validations = 0, tests = 0;
  for (const json& line : lines_of(run)) {
    validations += line.contains("validation_loss");
    tests += line.contains("eval_loss");
  }
  EXPECT_EQ(validations, 3);
  EXPECT_EQ(tests, 1);
  const json summary = json::parse(read_file(run + "/summary.json"));
  EXPECT_NE(summary["validation_loss"], summary["test_loss"]);
  const auto eval = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args{"eval", run, "--json"};
    args.insert(args.end(), more.begin(), more.end());
    const auto e = run_lathe(args);
    EXPECT_EQ(e.code, 0) << e.err;
    return json::parse(e.out);
  };
  for (const auto& [args, set] : {std::pair<std::vector<std::string>, std::string>{{}, "test"},
                                  {{"--split", "test"}, "test"},
                                  {{"--split", "validation"}, "validation"}}) {
    const json e = eval(args);
    EXPECT_EQ(e["set"], set);
    EXPECT_EQ(e["loss"], summary[set + "_loss"]) << set;
    EXPECT_EQ(e["accuracy"], summary[set + "_accuracy"]) << set;
    EXPECT_EQ(e["samples"], 60);
  }
  EXPECT_NE(run_lathe({"eval", run, "--split", "validation"}).out.find("validation loss"), std::string::npos);
  EXPECT_EQ(run_lathe({"eval", run, "--set", "validation"}).code, 78) << "no key of a recipe";
  const auto none = run_lathe({"predict", run, "train:0-2"});
  EXPECT_EQ(none.code, 64);
  EXPECT_NE(none.err.find("test:N, test:A-B, validation:N or validation:A-B, got \"train\""), std::string::npos)
      << none.err;
  // Another seed would hold other samples out.
  const auto other = run_lathe({"eval", run, "--split", "validation", "--set", "seed=5"});
  EXPECT_EQ(other.code, 78);
  EXPECT_NE(other.err.find("--set seed"), std::string::npos) << other.err;
  EXPECT_EQ(run_lathe({"eval", run, "--set", "seed=5"}).code, 0) << "of the test set it changes nothing";
  const auto p = run_lathe({"predict", run, "validation:0-2", "test:1", "--json"});
  ASSERT_EQ(p.code, 0) << p.err;
  const json predicted = json::parse(p.out);
  ASSERT_EQ(predicted.size(), 4u);
  EXPECT_EQ(predicted[2]["input"], "validation:2");
  EXPECT_EQ(predicted[3]["input"], "test:1");
  EXPECT_NE(run_lathe({"predict", run, "validation:60"}).err.find("numbers below 60"), std::string::npos);
  const std::string report = read_file(run + "/report.html");
  for (const char* part : {"validation accuracy", "test accuracy", "Accuracy on validation data", "60 test samples"})
    EXPECT_NE(report.find(part), std::string::npos) << part;
  EXPECT_EQ(report.find("Accuracy on test data"), std::string::npos) << "one point is no curve";
}

TEST(Sets, WithoutAValidationSetNothingIsChosen) {
  const TempDir dir;
  for (const char* key : {"checkpoint.best=true", "train.patience=2", "schedule.name=plateau"}) {
    const auto t = run_lathe(with_sets({"train", "mlp", "--out", dir.path("run")},
                                       {"data.source=synthetic", "train.steps=4", "model.hidden=[8]", key}));
    EXPECT_EQ(t.code, 78) << key;
    EXPECT_NE(t.err.find("data.validation = 0.1"), std::string::npos) << t.err;
    EXPECT_FALSE(std::filesystem::exists(dir.path("run"))) << "a run that cannot start leaves nothing";
  }
  ASSERT_EQ(run_lathe(with_sets({"train", "mlp", "-q", "--out", dir.path("run")},
                                {"data.source=synthetic", "train.steps=4", "model.hidden=[8]"}))
                .code,
            0);
  const auto e = run_lathe({"eval", dir.path("run"), "--split", "validation"});
  EXPECT_EQ(e.code, 66);
  EXPECT_NE(e.err.find("there is no validation set"), std::string::npos) << e.err;
}

// Whatever the labels of the test rows are, the weights, the best checkpoint and the end of the run are the same.
TEST(Sets, ChoosingNeverReadsTheTestSet) {
  const TempDir dir;
  const auto table = [&](const char* name, int wrong) {
    std::ofstream out(dir.path(name));
    out << "a,b,label\n";
    for (int i = 0; i < 60; ++i) out << i % 3 << "," << (i % 3) * (i % 3) << ",kind" << (i + wrong) % 3 << "\n";
    return dir.path(name);
  };
  const std::string honest = table("honest.csv", 0), poisoned = table("poisoned.csv", 1);
  std::string chosen[2], curves[2];
  for (const bool poison : {false, true}) {
    TrainOptions o;
    o.out = dir.path(poison ? "b" : "a");
    const TrainResult r =
        train(load_recipe(table_file(dir), {"data.validation=0.25", "checkpoint.best=true", "train.patience=2",
                                            "train.min_delta=0.3", "train.epochs=12", "schedule.name=plateau",
                                            "schedule.patience=1", "data.test_path=" + (poison ? poisoned : honest)}),
              o);
    EXPECT_TRUE(r.stopped_early);
    EXPECT_GT(r.best_step, 0);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      chosen[poison] += read_file(test::newest_checkpoint(o.out) + "/" + file);
    for (const auto& entry : std::filesystem::directory_iterator(o.out + "/best"))
      chosen[poison] += entry.path().filename().string() + read_file(entry.path().string() + "/model.safetensors");
    for (const json& line : lines_of(o.out))
      if (!line.contains("eval_loss")) curves[poison] += line.dump() + "\n";
    EXPECT_EQ(r.accuracy < 0.5, poison) << "the test set itself is another";
  }
  EXPECT_TRUE(chosen[0] == chosen[1]);
  EXPECT_EQ(curves[0], curves[1]);
}

TEST(Sets, AResumedRunKeepsTheSplit) {
  const TempDir dir;
  const std::string recipe = table_file(dir);
  const auto train = [&](const std::string& out, const char* epochs, bool resume) {
    std::vector<std::string> args{"train", recipe, "--out", dir.path(out)};
    if (resume) args.emplace_back("--resume");
    const auto t = run_lathe(with_sets(args, {"data.validation=0.25", std::string("train.epochs=") + epochs}));
    EXPECT_EQ(t.code, 0) << t.err;
    return t.out;
  };
  train("whole", "4", false);
  train("parts", "2", false);
  EXPECT_EQ(train("parts", "4", true).find("held out"), std::string::npos);
  EXPECT_TRUE(read_file(test::newest_checkpoint(dir.path("whole")) + "/model.safetensors") ==
              read_file(test::newest_checkpoint(dir.path("parts")) + "/model.safetensors"));
  const auto validations = [&](const char* run) {
    std::string out;
    for (const json& line : lines_of(dir.path(run)))
      if (line.contains("validation_loss")) out += line.dump() + "\n";
    return out;
  };
  EXPECT_EQ(validations("whole"), validations("parts"));
  // A table with more rows holds others out.
  std::ofstream(dir.path("sorted.csv"), std::ios::app) << "1,1,kind1\n2,2,kind2\n0,0,kind0\n1,2,kind1\n";
  EXPECT_NE(train("parts", "5", true).find("warning: other samples are held out for validation"), std::string::npos);
}

TEST(Sets, AClassThatASetLacksIsReported) {
  const TempDir dir;
  const std::string recipe = table_file(dir);
  std::ofstream(dir.path("test.csv")) << "a,b,label\n0,0,kind0\n1,1,kind1\n";
  const auto t = run_lathe(with_sets({"train", recipe, "--out", dir.path("run")},
                                     {"data.test_path=" + dir.path("test.csv"), "train.steps=2"}));
  ASSERT_EQ(t.code, 0) << t.err;
  EXPECT_NE(t.out.find("warning: no sample of class 2 (\"kind2\") in the test set"), std::string::npos) << t.out;
  EXPECT_EQ(json::parse(read_file(dir.path("run/summary.json")))["warnings"].size(), 1u);
  EXPECT_NE(
      read_file(dir.path("run/report.html")).find("Warning: no sample of class 2 (&quot;kind2&quot;) in the test"),
      std::string::npos);
  const std::string told = "lathe: warning: no sample of class 2 (\"kind2\") in the test set";
  for (const char* how : {"--quiet", "--json"}) {
    const auto quiet = run_lathe(with_sets({"train", recipe, how, "--out", dir.path(how)},
                                           {"data.test_path=" + dir.path("test.csv"), "train.steps=2"}));
    EXPECT_EQ(quiet.code, 0);
    EXPECT_NE(quiet.err.find(told), std::string::npos) << how << quiet.err;
  }
  EXPECT_NE(run_lathe({"eval", dir.path("run")}).err.find(told), std::string::npos);
  const auto e = run_lathe({"eval", dir.path("run"), "--json"});
  EXPECT_NE(e.err.find(told), std::string::npos) << e.err;
  EXPECT_EQ(json::parse(e.out)["warnings"].size(), 1u);
}

TEST(Sets, NoStepsLeaveTheFirstCheckpoint) {
  const TempDir dir;
  const auto t = run_lathe(with_sets({"train", table_file(dir), "--out", dir.path("run")}, {"train.epochs=0"}));
  ASSERT_EQ(t.code, 0) << t.err;
  EXPECT_NE(test::newest_checkpoint(dir.path("run")).find("step-000000000"), std::string::npos);
  EXPECT_EQ(t.out.find("nan"), std::string::npos) << t.out;
}

// Sets that are smaller than a batch, equal to one, and with tails of their own: the certificate is exact, and what
// training measured is what `lathe eval` measures.
TEST(Sets, AnySizesFitTheCertificate) {
  for (const auto& [validation, tests] : {std::pair{"0.5", "10"}, {"0.1", "64"}, {"0.25", "40"}, {"0.3", "38"}}) {
    const TempDir dir;
    TrainOptions o;
    o.out = dir.path("run");
    const TrainResult r = train(
        load_recipe("mlp", {"data.source=synthetic", "data.shape=[4,4,1]", "data.train_samples=128",
                            std::string("data.validation=") + validation, std::string("data.test_samples=") + tests,
                            "model.hidden=[8]", "train.batch_size=16", "train.eval_batch=32", "train.steps=8"}),
        o);
    EXPECT_EQ(r.allocated, r.memory.total());
    EXPECT_EQ(evaluate(o.out, {}).loss, r.test->loss);
    EXPECT_EQ(evaluate(o.out, {.split = data::Split::validation}).loss, r.validation->loss);
    EXPECT_EQ(r.test->samples, std::stoi(tests));
    EXPECT_EQ(r.validation->samples, static_cast<int64_t>(std::stod(validation) * 128));
  }
}

TEST(Sets, ATestSetIsNotNeededWithValidation) {
  const TempDir dir;
  const std::string from = "/usr/share/datasets/fashion-mnist";
  ASSERT_TRUE(std::filesystem::exists(from)) << "tools/setup installs it";
  std::filesystem::create_directories(dir.path("idx"));
  for (const auto& e : std::filesystem::directory_iterator(from))
    if (e.path().filename().string().starts_with("train"))
      std::filesystem::create_symlink(e.path(), dir.path("idx/" + e.path().filename().string()));
  const Sets sets{"data.source=idx", "data.path=" + dir.path("idx"), "data.train_samples=640", "train.steps=4",
                  "model.hidden=[8]"};
  EXPECT_EQ(run_lathe(with_sets({"train", "mlp", "--out", dir.path("none")}, sets)).code, 66);
  Sets held = sets;
  held.emplace_back("data.validation=0.2");
  const auto t = run_lathe(with_sets({"train", "mlp", "--json", "--out", dir.path("run")}, held));
  ASSERT_EQ(t.code, 0) << t.err;
  const json j = json::parse(t.out);
  EXPECT_TRUE(j["test_loss"].is_null());
  EXPECT_TRUE(j["validation_loss"].is_number());
  const auto e = run_lathe({"eval", dir.path("run"), "--json"});
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(json::parse(e.out)["set"], "validation");
  EXPECT_NE(read_file(dir.path("run/report.html")).find("validation samples"), std::string::npos);
}

}  // namespace
}  // namespace lathe
