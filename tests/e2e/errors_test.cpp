// Errors as users meet them: exit code and the words that help.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "loop/trainer.h"
#include "process.h"

namespace lathe::test {
namespace {

struct Row {
  std::vector<std::string> args;
  int code;
  std::vector<std::string> words;
};

TEST(Errors, Table) {
  const TempDir dir;
  const auto file = [&](const std::string& name, const std::string& text) {
    std::ofstream(dir.path(name)) << text;
    return dir.path(name);
  };
  std::filesystem::create_directory(dir.path("empty"));
  std::filesystem::create_directory(dir.path("idx"));
  file("idx/train-images-idx3-ubyte", std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x04\0\0\0\x04xx", 18));
  // Four images of 5 x 6 with the labels 0 to 3, under a recipe with these lines from line 7 on.
  std::filesystem::create_directory(dir.path("four"));
  for (const char* split : {"train", "t10k"}) {
    file(std::string("four/") + split + "-images-idx3-ubyte",
         std::string("\0\0\x08\x03\0\0\0\x04\0\0\0\x05\0\0\0\x06", 16) + std::string(120, 'x'));
    file(std::string("four/") + split + "-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x04\0\1\2\3", 12));
  }
  const auto recipe = [&](const std::string& name, const std::string& more) {
    return file(name, "[data]\nsource = \"idx\"\npath = \"" + dir.path("four") +
                          "\"\nclasses = 3\n[train]\nbatch_size = 64\n" + more);
  };
  const Row rows[] = {
      {{}, 64, {"lathe train", "selftest"}},
      {{"--bogus"}, 64, {"lathe: error: lathe: unknown option --bogus"}},
      {{"trian"}, 64, {"unknown command \"trian\"", "did you mean \"train\"?", "predict"}},
      {{"bench", "stp"}, 64, {"unknown command \"stp\"", "did you mean \"step\"?"}},
      {{"ir", "mlp", "--json"}, 64, {"--json", "--time-passes"}},
      {{"ir", "mlp", "--before", "--after", "cse"}, 64, {"--before", "--after"}},
      {{"ir", "mlp", "--before", "--time-passes"}, 64, {"--before"}},
      {{"train", "--out", ""}, 64, {"--out", "expected a value"}},
      {{"train", ""}, 64, {"RECIPE", "expected a value"}},
      {{"recipes", "mlp", "--json"}, 64, {"--json"}},
      {{"recipes", "--keys", "--json"}, 64, {"--json"}},
      {{"selftest", "--passes", "--device", "ref"}, 64, {"--passes", "--device"}},
      {{"selftest", "--passes", "--product", "128"}, 64, {"--passes", "--product"}},
      {{"selftest", "--device", "ref", "--product", "128"}, 64, {"--product: expected --device cuda, got ref"}},
      {{"selftest", "--card"}, 64, {"--card: expected --device cuda, got cpu"}},
      {{"selftest", "--device", "cuda", "--op", "relu", "--product", "128"}, 64, {"--product", "--op"}},
      {{"plan", "mlp", "--target", "a100-40gb", "--device", "opencl"}, 64, {"--target", "--device"}},
      {{"train", "--wrong"}, 64, {"lathe: error: ", "--wrong"}},
      {{"train", "--profile", "--profile-steps", "99999999999999999999"}, 64, {"--profile-steps: expected a whole"}},
      {{"train", "--set", "name=" + std::string(120, 'x')}, 78, {"name: expected at most 100 letters"}},
      {{"train", "fashion_mnst"}, 66, {"fashion_mnist"}},
      {{"train", "no/such/file.toml"}, 66, {"no/such/file.toml"}},
      {{"train", "--set", "train.epocs=1"}, 78, {"train.epocs", "did you mean", "train.epochs"}},
      {{"train", "--set", "train.epochs=many"}, 78, {"train.epochs", "expected"}},
      {{"train", "--set", "train.epochs"}, 78, {"train.epochs", "="}},
      {{"train", "--set", "optimizer.lr=-1"}, 78, {"optimizer.lr"}},
      {{"train", "--set", "optimizer.name=sdg"}, 78, {"sgd"}},
      {{"train", "--set", "train.update=at_gradient", "--set", "train.clip_norm=1"}, 78, {"at_gradient", "clip_norm"}},
      {{"train", "--device", "gpu"}, 64, {"--device: expected auto, cpu"}},
      {{"train", "mlp", "--device", "opencl:77", "--set", "data.source=synthetic", "--out", dir.path("o1")},
       71,
       {"opencl"}},
      {{"train", file("bad.toml", "seed = 1\n[train\nepochs = 2\n")}, 78, {"bad.toml:2:"}},
      {{"train", file("key.toml", "seed = 1\n[train]\n  batch_sze = 2\n")}, 78, {"key.toml:3:3", "batch_size"}},
      {{"train", file("family.toml", "[model]\nfamily = \"gpt\"\n"), "--out", dir.path("o2")}, 78, {}},
      {{"train", "--set", "data.path=" + dir.path("empty"), "--out", dir.path("o3")},
       66,
       {"dataset-fashion-mnist", "data.path"}},
      {{"train", "--set", "data.source=idx", "--set", "data.path=" + dir.path("idx"), "--out", dir.path("o4")},
       65,
       {"train-images-idx3-ubyte"}},
      {{"train", "--set", "data.source=synthetic", "--set", "train.batch_size=100000", "--out", dir.path("o5")},
       78,
       {"--set train.batch_size: expected at most 4096"}},
      // What only the data can show is still an error of the recipe, with its place.
      {{"plan", recipe("batch.toml", "")}, 78, {"batch.toml:6:14: train.batch_size: expected at most 4 "}},
      {{"train", recipe("batch.toml", "")}, 78, {"batch.toml:6:14: train.batch_size: expected at most 4 "}},
      {{"plan", recipe("crop.toml", "[data.augment]\ncrop = 5\n"), "--set", "train.batch_size=2"},
       78,
       {"crop.toml:8:8: data.augment.crop: expected less than the image side 5, got 5"}},
      {{"plan", recipe("mean.toml", "[data.normalize]\nmean = [0.1, 0.2]\nstd = [1, 2]\n"), "--set",
        "train.batch_size=2"},
       78,
       {"mean.toml:8:8: data.normalize.mean: expected 1 number or one for each of 1 channels, got 2"}},
      {{"train", recipe("classes.toml", ""), "--set", "train.batch_size=2", "--out", dir.path("c1")},
       78,
       {"classes.toml:4:11: data.classes: expected more than 3, the label of sample 3", "got 3"}},
      {{"plan", recipe("stages.toml", "[model]\nfamily = \"cnn\"\nchannels = [2, 2, 2]\n"), "--set",
        "train.batch_size=2"},
       78,
       {"stages.toml:9:12: model.channels: expected few enough stages for images of 5 x 6"}},
      {{"plan", recipe("samples.toml", ""), "--set", "data.train_samples=9", "--set", "train.batch_size=2"},
       78,
       {"--set data.train_samples: expected at most 4, the train samples there are, got 9"}},
      {{"train", "gpt_tiny", "--set", "data.path=" + file("accents.txt", std::string(9000, '\xe9')), "--set",
        "model.vocab=128", "--out", dir.path("v1")},
       78,
       {"--set model.vocab: expected more than 233", "accents.txt"}},
      {{"plan", "gpt_tiny", "--set", "data.path=" + file("short.txt", "abc")},
       78,
       {"gpt_tiny:", "data.sequence: expected at most", "short.txt"}},
      {{"train", "--set", "optimizer.beta1=0.5"}, 78, {"--set optimizer.beta1: has no effect", "adam"}},
      {{"train", "gpt_tiny", "--set", "data.augment.crop=1"}, 78, {"--set data.augment.crop: has no effect", "images"}},
      {{"plan", dir.path("empty")}, 66, {"expected a recipe file, got a directory"}},
      {{"plan", "--set", "memory.budget=5 parsec"}, 78, {"memory.budget", "KiB, MiB, GiB, TiB", "KB, MB, GB, TB"}},
      {{"plan", "--set", "data.path=" + dir.path("empty")}, 66, {"dataset-fashion-mnist", "data.path"}},
      {{"train", "--set", "memory.budget=1MiB", "--set", "data.source=synthetic", "--out", dir.path("o6")},
       71,
       {"available", "batch"}},
      {{"train", "--out", "/proc/nothing/run", "--set", "data.source=synthetic"},
       73,
       {"/proc/nothing: No such file or directory\n"}},
      {{"train", "--disable-pass", "fuze", "--set", "data.source=synthetic", "--out", dir.path("o7")},
       64,
       {"fuze", "fuse"}},
      {{"train", "--resume", "--out", dir.path("file-not-dir"), "--set", "data.source=synthetic", "--set",
        "train.steps=1"},
       0,
       {}},
      {{"eval", dir.path("empty")}, 66, {"run directory"}},
      {{"predict", dir.path("empty"), "x"}, 66, {"run directory"}},
      {{"plan", "nothing"}, 66, {"fashion_mnist"}},
      {{"plan", "--set", "train.batch_size=0"}, 78, {"batch_size"}},
      {{"ir", "--after", "nothing"}, 64, {"nothing"}},
      {{"ir", "--program", "nothing"}, 64, {"nothing", "train"}},
      {{"selftest", "--device", "nothing"}, 64, {"nothing"}},
      {{"selftest", "--op", "sofmax"}, 64, {"sofmax", "did you mean \"softmax\"?"}},
      {{"bench", "step", "nothing"}, 64, {"mlp"}},
      {{"recipes", "nothing"}, 66, {"fashion_mnist"}},
      {{"train", "gpt_tiny", "--set", "data.path=" + dir.path("no.txt"), "--out", dir.path("o8")}, 66, {"no.txt"}},
      {{"train", "gpt_tiny", "--set", "model.heads=3", "--out", dir.path("o9")}, 78, {"heads", "width"}},
      {{"train", "mlp", "--set", "data.source=synthetic", "--set", "data.normalize.mean=[1,2]", "--out",
        dir.path("o10")},
       78,
       {"normalize"}},
      {{"train", "mlp", "--set", "data.source=text", "--out", dir.path("o11")}, 78, {"model.family"}},
  };
  for (const Row& row : rows) {
    const Outcome r = run_lathe(row.args);
    std::string command;
    for (const std::string& a : row.args) command += a + " ";
    EXPECT_EQ(r.code, row.code) << command << "\n" << r.err;
    for (const std::string& w : row.words)
      EXPECT_NE((r.err + r.out).find(w), std::string::npos) << command << ": no \"" << w << "\" in: " << r.err;
    EXPECT_EQ(r.err.find("internal error"), std::string::npos) << command << r.err;
  }
}

TEST(Errors, EvaluationNeedsTheRunsOwnRecipe) {
  const TempDir dir;
  const std::string run = dir.path("run");
  ASSERT_EQ(run_lathe({"train", "mlp", "--set", "data.source=synthetic", "--set", "train.steps=2", "--out", run}).code,
            0);
  EXPECT_EQ(run_lathe({"eval", run}).code, 0);
  EXPECT_EQ(run_lathe({"eval", run, "--set", "train.eval_batch=7"}).code, 0);
  std::ofstream(run + "/recipe.toml") << "[data]\nsource = \"synthetic\"\n";
  for (const std::vector<std::string>& args : {std::vector<std::string>{"eval", run}, {"predict", run, "test:0"}}) {
    const Outcome r = run_lathe(args);
    EXPECT_EQ(r.code, 65) << r.err;
    EXPECT_NE(r.err.find("recipe.toml: is not the recipe"), std::string::npos) << r.err;
  }
}

TEST(Errors, LostOutputIsAnError) {
  for (const char* command :
       {"--version", "train --help", "fetch", "recipes mlp", "plan mlp --set data.source=synthetic --json"}) {
    const std::string shell = std::string(LATHE_BINARY) + " " + command;
    EXPECT_EQ(WEXITSTATUS(std::system((shell + " >/dev/full 2>/dev/null").c_str())), 74) << command;
    EXPECT_EQ(WEXITSTATUS(std::system((shell + " >&- 2>/dev/null").c_str())), 74) << command;
    EXPECT_EQ(WEXITSTATUS(std::system(("bash -c 'set -o pipefail; " + shell + " | true'").c_str())), 0) << command;
  }
}

TEST(Errors, WarmupBeyondTheRunIsWarnedAbout) {
  const TempDir dir;
  const Outcome o = run_lathe({"train", "mlp", "--out", dir.path("run"), "--set", "data.source=synthetic", "--set",
                               "data.train_samples=64", "--set", "data.test_samples=8", "--set", "train.batch_size=8",
                               "--set", "train.steps=2", "--set", "schedule.warmup_steps=5"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("warning: schedule.warmup_steps = 5, but the run has 2 steps"), std::string::npos) << o.out;
}

TEST(Errors, NonFiniteLossEndsTheRun) {
  const TempDir dir;
  const Outcome r =
      run_lathe({"train", "mlp", "--set", "data.source=synthetic", "--set", "optimizer.lr=1e3", "--set",
                 "optimizer.momentum=0.99", "--set", "train.steps=500", "--quiet", "--out", dir.path("run")});
  EXPECT_EQ(r.code, 65) << r.err;
  EXPECT_NE(r.err.find("not both finite"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("optimizer.lr"), std::string::npos);
  EXPECT_NE(r.err.find("there is no checkpoint yet"), std::string::npos) << r.err;
  std::istringstream lines(read_file(dir.path("run/metrics.jsonl")));
  std::string line, last;
  while (std::getline(lines, line)) last = line;
  for (const char* key : {"epoch", "lr", "grad_norm", "skipped"})
    EXPECT_TRUE(nlohmann::json::parse(last).contains(key)) << last;
}

TEST(Errors, RefusedStepsAreToldOf) {
  const TempDir dir;
  const std::vector<std::string> args{"train", "mlp",
                                      "--set", "data.source=synthetic",
                                      "--set", "data.train_samples=256",
                                      "--set", "data.test_samples=16",
                                      "--set", "optimizer.lr=1e3",
                                      "--set", "optimizer.momentum=0.99",
                                      "--set", "train.steps=80",
                                      "--set", "train.on_nan=skip",
                                      "--set", "train.nan_patience=1000",
                                      "--out", dir.path("run")};
  const Outcome r = run_lathe(args);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("refused steps "), std::string::npos) << r.out;
  EXPECT_NE(r.out.find(" of 80: loss or gradients were not finite"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("loss of the last batch"), std::string::npos) << r.out;
  const auto skipped = nlohmann::json::parse(read_file(dir.path("run/summary.json")))["skipped_steps"];
  EXPECT_GT(skipped, 10);
  const Outcome runs = run_lathe({"runs", dir.path("run"), "--json"});
  EXPECT_EQ(nlohmann::json::parse(runs.out)["runs"][0]["skipped"], skipped) << runs.out;
}

TEST(Errors, OutputsThatAreNotFiniteAreNoPredictions) {
  const TempDir dir;
  TrainOptions o;
  o.out = dir.path("run");
  o.on_step = [](int64_t, Executor& e) {
    for (const Port& p : e.set().state) {
      if (p.name.find("weight") == std::string::npos || p.type.dtype != DType::f32) continue;
      // Finite, as a checkpoint must have them.
      const std::vector<float> bad(static_cast<size_t>(p.type.numel()), std::numeric_limits<float>::max());
      e.write_state(p.name, std::as_bytes(std::span(bad)));
    }
  };
  train(load_recipe("mlp", {"data.source=synthetic", "data.train_samples=16", "data.test_samples=8",
                            "train.batch_size=8", "train.steps=1", "model.hidden=[8]", "train.eval_every=0"}),
        o);
  const Outcome p = run_lathe({"predict", o.out, "test:0"});
  EXPECT_EQ(p.code, 65) << p.out;
  EXPECT_EQ(p.out, "");
  EXPECT_NE(p.err.find("test:0: the net of"), std::string::npos) << p.err;
  EXPECT_NE(p.err.find("no prediction"), std::string::npos) << p.err;
}

TEST(Errors, FullDisk) {
  // A file system of its own: needs the right to mount.
  const TempDir dir;
  std::filesystem::create_directory(dir.path("disk"));
  if (std::system(("mount -t tmpfs -o size=3m tmpfs " + dir.path("disk") + " 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "may not mount a file system here";
  const auto args = [&](const char* on_error) {
    return std::vector<std::string>{"train",   "mlp",
                                    "--set",   "data.source=synthetic",
                                    "--set",   "train.steps=6",
                                    "--set",   "checkpoint.every_steps=2",
                                    "--set",   std::string("checkpoint.on_error=") + on_error,
                                    "--out",   dir.path("disk/run"),
                                    "--resume"};
  };
  const Outcome fail = run_lathe(args("fail")), warn = run_lathe(args("warn"));
  const std::string page = read_file(dir.path("disk/run/report.html"));
  std::system(("umount " + dir.path("disk")).c_str());
  EXPECT_EQ(fail.code, 74) << fail.err;
  EXPECT_NE(fail.err.find("free"), std::string::npos) << fail.err;
  EXPECT_EQ(warn.code, 0) << warn.err;
  EXPECT_NE(warn.out.find("no checkpoint at step"), std::string::npos) << warn.out;
  EXPECT_NE(page.find("no valid checkpoint"), std::string::npos) << warn.err;
}

}  // namespace
}  // namespace lathe::test
