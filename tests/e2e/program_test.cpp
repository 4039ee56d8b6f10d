// The command line as scripts and people use it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "ir/print.h"
#include "ops/registry.h"
#include "process.h"

namespace lathe::test {
namespace {

TEST(Program, EveryCommandHasHelpWithAnExample) {
  for (const char* command :
       {"train", "eval", "predict", "runs", "plan", "ir", "devices", "selftest", "bench", "recipes", "ops", "env"}) {
    const Outcome r = run_lathe({command, "--help"});
    EXPECT_EQ(r.code, 0) << command;
    EXPECT_NE(r.out.find("Example"), std::string::npos) << command;
  }
  EXPECT_EQ(run_lathe({"--version"}).code, 0);
}

TEST(Program, PlanIsWhatTheRunAllocates) {
  const TempDir dir;
  for (const char* recipe : {"mlp", "fashion_mnist", "gpt_tiny"}) {
    const std::vector<std::string> sets{"--set", "train.steps=1",        "--set", "data.train_samples=64",
                                        "--set", "data.test_samples=64", "--set", "train.batch_size=16",
                                        "--set", "train.eval_every=0",   "--set", "data.path="};
    std::vector<std::string> plan{"plan", recipe, "--json"},
        train{"train", recipe, "--json", "--out", dir.path(recipe)};
    plan.insert(plan.end(), sets.begin(), sets.end());
    train.insert(train.end(), sets.begin(), sets.end());
    const Outcome p = run_lathe(plan), t = run_lathe(train);
    ASSERT_EQ(p.code, 0) << p.err;
    ASSERT_EQ(t.code, 0) << t.err;
    EXPECT_EQ(nlohmann::json::parse(p.out)["run"]["total"], nlohmann::json::parse(t.out)["memory_allocated"]) << recipe;
  }
}

TEST(Program, PlanWarnsOfAnAbsentDevice) {
  const Outcome r = run_lathe({"plan", "mlp", "--device", "opencl:99"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("warning: opencl:99: no such device here"), std::string::npos) << r.err;
  EXPECT_EQ(run_lathe({"plan", "mlp"}).err, "");
}

// A plan reads headers: an image file whose pixels are missing from the disk blocks (a hole) costs nothing, and a plan
// of synthetic data makes none.
TEST(Program, PlanReadsNoSamples) {
  const TempDir dir;
  const int64_t count = 4000000;  // of 784 bytes: 3 GB
  for (const char* split : {"train", "t10k"}) {
    const auto sparse = [&](const std::string& name, std::string header, int64_t bytes) {
      const std::string path = dir.path(split + name);
      std::ofstream(path) << header;
      std::filesystem::resize_file(path, header.size() + static_cast<size_t>(bytes));
    };
    const auto number = [](int64_t n) {
      std::string out;
      for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(n >> shift & 0xff);
      return out;
    };
    sparse("-images-idx3-ubyte", std::string("\0\0\x08\x03", 4) + number(count) + number(28) + number(28), count * 784);
    sparse("-labels-idx1-ubyte", std::string("\0\0\x08\x01", 4) + number(count), count);
  }
  const Outcome r =
      run_lathe({"plan", "mlp", "--json", "--set", "data.source=idx", "--set", "data.path=" + dir.path()});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(nlohmann::json::parse(r.out)["run"]["data"], 2 * (16 + 8 + count * 785));
}

TEST(Program, MetricsBeginWithStepOne) {
  const TempDir dir;
  const Outcome t = run_lathe({"train", "mlp", "--quiet", "--out", dir.path("run"), "--set", "data.source=synthetic",
                               "--set", "train.steps=3", "--set", "model.hidden=[8]"});
  ASSERT_EQ(t.code, 0) << t.err;
  const std::string log = read_file(dir.path("run/metrics.jsonl"));
  const auto first = nlohmann::json::parse(log.substr(0, log.find('\n')));
  EXPECT_EQ(first["step"], 1);
  EXPECT_GT(first["loss"].get<double>(), 1.0);
  const Outcome p = run_lathe({"predict", dir.path("run"), "test:0", "--tokens", "5"});
  EXPECT_EQ(p.code, 64);
  EXPECT_NE(p.err.find("--tokens"), std::string::npos) << p.err;
  // Passes that were left out change the last bits: a resumed run must leave out the same.
  const Outcome resumed =
      run_lathe({"train", "mlp", "--resume", "--out", dir.path("run"), "--set", "data.source=synthetic", "--set",
                 "train.steps=5", "--set", "model.hidden=[8]", "--disable-pass", "fuse"});
  EXPECT_EQ(resumed.code, 78);
  EXPECT_NE(resumed.err.find("--disable-pass"), std::string::npos) << resumed.err;
}

TEST(Program, BenchLoaderComparesWithTheStep) {
  const Outcome r = run_lathe({"bench", "loader", "mlp", "--json", "--set", "data.source=synthetic", "--set",
                               "model.hidden=[16]", "--set", "train.batch_size=16"});
  ASSERT_EQ(r.code, 0) << r.err;
  const auto j = nlohmann::json::parse(r.out);
  EXPECT_GT(j["samples_per_second"].get<double>(), 100);
  EXPECT_NEAR(j["mb_per_second"].get<double>(), j["samples_per_second"].get<double>() * 788e-6, 1e-3);
  EXPECT_NEAR(j["needed_samples_per_second"].get<double>(), 16e3 / j["step_ms"].get<double>(), 1);
}

TEST(Program, PlanListsKernelsAndReasons) {
  const Outcome r = run_lathe({"plan", "fashion_mnist", "--nodes"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("conv2d"), std::string::npos);
  const Outcome cl = run_lathe({"plan", "mlp", "--json"});
  const auto j = nlohmann::json::parse(cl.out);
  EXPECT_GT(j["programs"][0]["launches"].size(), 5u);
}

TEST(Program, IrPrintsGraphsThatParseBack) {
  for (const char* recipe : {"mlp", "fashion_mnist", "gpt_tiny"})
    for (const std::vector<std::string>& how : {std::vector<std::string>{"--before"}, {"--after", "autodiff"}, {}}) {
      std::vector<std::string> args{"ir", recipe, "--set", "data.path="};
      args.insert(args.end(), how.begin(), how.end());
      const Outcome r = run_lathe(args);
      ASSERT_EQ(r.code, 0) << r.err;
      const Graph g = parse_graph(r.out, registry());
      EXPECT_EQ(print(g) + "\n", r.out);
    }
}

TEST(Program, PassesAreFast) {
  const Outcome r = run_lathe({"ir", "gpt_tiny", "--set", "data.path=", "--time-passes", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_GE(nlohmann::json::parse(r.out).size(), 6u);
}

TEST(Program, DisabledPassesGiveTheSameTraining) {
  const TempDir dir;
  const auto loss = [&](const std::vector<std::string>& disabled) {
    std::vector<std::string> args{
        "train",
        "fashion_mnist",
        "--json",
        "--out",
        dir.path("run" + std::to_string(disabled.size()) + (disabled.empty() ? "" : disabled[0])),
        "--set",
        "data.source=synthetic",
        "--set",
        "data.train_samples=64",
        "--set",
        "data.test_samples=16",
        "--set",
        "train.batch_size=16",
        "--set",
        "train.steps=20",
        "--set",
        "model.channels=[4,8]"};
    for (const std::string& d : disabled) args.insert(args.end(), {"--disable-pass", d});
    const Outcome r = run_lathe(args);
    EXPECT_EQ(r.code, 0) << r.err;
    return nlohmann::json::parse(r.out)["loss"].get<double>();
  };
  const double all = loss({});
  for (const std::vector<std::string>& d :
       {std::vector<std::string>{"fuse"}, {"layout"}, {"cse"}, {"fold"}, {"canonicalize"}})
    EXPECT_NEAR(loss(d), all, 1e-3 * (1 + all)) << d[0];
}

TEST(Program, DevicesAndOps) {
  const Outcome d = run_lathe({"devices", "--no-measure", "--json"});
  ASSERT_EQ(d.code, 0) << d.err;
  const auto list = nlohmann::json::parse(d.out);
  EXPECT_GE(list.size(), 3u);
  const Outcome ops = run_lathe({"devices", "--ops", "--json"});
  ASSERT_EQ(ops.code, 0) << ops.err;
  const Outcome text = run_lathe({"devices", "--ops", "--no-measure"});
  ASSERT_EQ(text.code, 0) << text.err;
  for (const auto& row : nlohmann::json::parse(ops.out)) {
    const std::string op = row["op"];
    const bool view = row["ref"]["kernels"].empty();
    EXPECT_EQ(view, op == "reshape") << "only a view has no kernel";
    for (const char* backend : {"ref", "cpu", "opencl", "cuda"}) {
      EXPECT_TRUE(view || !row[backend]["types"].empty()) << op << " on " << backend << ": " << row[backend];
      for (const auto& [reason, types] : row[backend]["missing"].items())
        EXPECT_FALSE(reason.empty() || types.empty()) << op << " on " << backend;
      for (const auto& [kernel, types] : row[backend]["kernels"].items())
        for (const std::string type : types)
          EXPECT_TRUE(kernel.find("_widened") == std::string::npos || type == "f16" || type == "bf16")
              << op << ": " << kernel << " is for 16 bits, not for " << type;
      // "matmul               cpu     ..."
      EXPECT_NE(text.out.find(fmt::format("\n{:<20} {:<7} ", op, backend)), std::string::npos) << op << " " << backend;
    }
    const auto types_of = [&](const char* kernel) { return row["cuda"]["kernels"].value(kernel, nlohmann::json()); };
    // Libraries are named although there is no card here.
    EXPECT_TRUE(op != "matmul" || types_of("cublaslt").size() == 4) << row["cuda"];
    EXPECT_TRUE(op != "conv2d" || types_of("cudnn").size() >= 3) << row["cuda"];
    if (op == "attention" || op == "attention_grad") {
      EXPECT_EQ(types_of("cudnn_attention"), nlohmann::json({"f16", "bf16"})) << op << row["cuda"];
    }
    EXPECT_TRUE(op != "conv2d_dw" || row["cuda"]["otherwise"]["cudnn"] == "cuda_direct") << row["cuda"];
    EXPECT_TRUE(op != "attention_grad" || row["cuda"]["otherwise"]["cudnn_attention"] == "cuda_direct") << row["cuda"];
  }
}

TEST(Program, TextModelsContinueText) {
  const TempDir dir;
  const Outcome t = run_lathe({"train", "gpt_tiny", "--quiet", "--out", dir.path("run"), "--set", "data.path=", "--set",
                               "model.layers=1", "--set", "model.width=32", "--set", "model.sequence=32", "--set",
                               "train.steps=60", "--set", "data.test_samples=8", "--set", "train.batch_size=8"});
  ASSERT_EQ(t.code, 0) << t.err;
  const Outcome e = run_lathe({"eval", dir.path("run"), "--json"});
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_LT(nlohmann::json::parse(e.out)["loss"].get<double>(), 4.0);
  FILE* f = fopen(dir.path("prompt.txt").c_str(), "w");
  fputs("the ", f);
  fclose(f);
  const Outcome p =
      run_lathe({"predict", dir.path("run"), dir.path("prompt.txt"), "--tokens", "12", "--temperature", "0", "--json"});
  ASSERT_EQ(p.code, 0) << p.err;
  EXPECT_EQ(nlohmann::json::parse(p.out)[0]["text"].get<std::string>().size(), 12u);
}

TEST(Program, RunsAreListedAndCompared) {
  const TempDir dir;
  const auto train = [&](const char* name, const char* lr) {
    const Outcome t = run_lathe({"train", "mlp", "--quiet", "--out", dir.path(name), "--set", "data.source=synthetic",
                                 "--set", "train.steps=6", "--set", "train.log_every=1", "--set", "model.hidden=[8]",
                                 "--set", std::string("optimizer.lr=") + lr});
    return t.code;
  };
  ASSERT_EQ(train("a", "0.1"), 0);
  ASSERT_EQ(train("b", "0.01"), 0);
  ASSERT_EQ(train("c", "0.02"), 0);
  std::filesystem::remove(dir.path("c/summary.json"));  // as if it had been killed
  const Outcome all = run_lathe({"runs", dir.path(), "--json"});
  ASSERT_EQ(all.code, 0) << all.err;
  const auto runs = nlohmann::json::parse(all.out)["runs"];
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0]["state"], "finished");
  EXPECT_EQ(runs[0]["step"], 6);
  EXPECT_EQ(runs[0]["model"], "mlp");
  EXPECT_GT(runs[0]["test"]["loss"].get<double>(), 0);
  EXPECT_TRUE(runs[0]["best"].empty()) << "nothing is chosen without a validation set";
  EXPECT_EQ(runs[2]["state"], "failed");
  const Outcome two = run_lathe({"runs", dir.path("a"), dir.path("b"), "--curves", dir.path("both.svg"), "--json"});
  ASSERT_EQ(two.code, 0) << two.err;
  const auto differences = nlohmann::json::parse(two.out)["differences"];
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0]["key"], "optimizer.lr");
  EXPECT_EQ(differences[0]["values"], (nlohmann::json{"0.1", "0.01"}));
  EXPECT_EQ(read_file(dir.path("both.svg")).find("<svg"), 0u);
  const Outcome table = run_lathe({"runs", dir.path("a"), dir.path("b"), "--curves", dir.path("both.html")});
  ASSERT_EQ(table.code, 0) << table.err;
  for (const char* part : {"test accuracy", "finished", "optimizer.lr", "0.01", "both.html"})
    EXPECT_NE(table.out.find(part), std::string::npos) << part << table.out;
  EXPECT_NE(read_file(dir.path("both.html")).find("optimizer.<wbr>lr"), std::string::npos);
  EXPECT_EQ(run_lathe({"runs", dir.path("a"), "--curves", dir.path("both.pdf")}).code, 64);
  EXPECT_EQ(run_lathe({"runs", dir.path("nothing")}).code, 66);
}

TEST(Program, EvalAndPredictOnOtherDevices) {
  const TempDir dir;
  const Outcome t = run_lathe({"train", "mlp", "--quiet", "--out", dir.path("run"), "--set", "data.source=synthetic",
                               "--set", "data.train_samples=300", "--set", "data.test_samples=100", "--set",
                               "train.batch_size=32", "--set", "train.steps=40", "--set", "model.hidden=[32]"});
  ASSERT_EQ(t.code, 0) << t.err;
  const auto accuracy = [&](const char* device) {
    const Outcome e = run_lathe({"eval", dir.path("run"), "--device", device, "--json"});
    EXPECT_EQ(e.code, 0) << device << e.err;
    return nlohmann::json::parse(e.out)["accuracy"].get<double>();
  };
  EXPECT_GT(accuracy("cpu"), 0.8);
  EXPECT_NEAR(accuracy("ref"), accuracy("cpu"), 0.011);
  const Outcome p = run_lathe({"predict", dir.path("run"), "test:0-3", "--device", "ref", "--json"});
  ASSERT_EQ(p.code, 0) << p.err;
  EXPECT_EQ(nlohmann::json::parse(p.out).size(), 4u);
}

// Each has a directory of its own, however close they start.
TEST(Program, RunsThatStartAtOnceDoNotMeet) {
  const TempDir dir;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  {
    std::vector<std::unique_ptr<Running>> all;
    for (int i = 0; i < 4; ++i)
      all.push_back(std::make_unique<Running>(
          std::vector<std::string>{"train", "mlp", "--quiet", "--set", "data.source=synthetic", "--set",
                                   "data.train_samples=64", "--set", "data.test_samples=8", "--set",
                                   "train.batch_size=8", "--set", "train.steps=2", "--set", "model.hidden=[8]"}));
    for (const auto& p : all) EXPECT_EQ(p->wait(), 0);
  }
  std::filesystem::current_path(before);
  int finished = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path("runs")))
    finished += std::filesystem::exists(entry.path() / "summary.json");
  EXPECT_EQ(finished, 4);
}

TEST(Program, TrainingTimeIsThatOfAllParts) {
  const TempDir dir;
  const auto train = [&](const char* steps) {
    const Outcome r =
        run_lathe({"train", "mlp", "--json", "--resume", "--out", dir.path("run"), "--set", "data.source=synthetic",
                   "--set", "data.train_samples=256", "--set", "data.test_samples=8", "--set", "train.batch_size=32",
                   "--set", "model.hidden=[8]", "--set", std::string("train.steps=") + steps});
    EXPECT_EQ(r.code, 0) << r.err;
    return nlohmann::json::parse(r.out);
  };
  const auto first = train("200"), second = train("201");
  EXPECT_EQ(first["training_seconds"], first["part_seconds"]);
  EXPECT_EQ(second["timed_from_step"], 0);
  EXPECT_NEAR(second["training_seconds"].get<double>(),
              first["training_seconds"].get<double>() + second["part_seconds"].get<double>(), 1e-3);
  const Outcome runs = run_lathe({"runs", dir.path("run"), "--json"});
  EXPECT_EQ(nlohmann::json::parse(runs.out)["runs"][0]["seconds"], second["training_seconds"]);
}

TEST(Program, LargeGraphsArePlannedInASecond) {
  // About 20,000 nodes before the passes.
  const Outcome r = run_lathe({"plan", "gpt_tiny", "--json", "--set", "data.path=", "--set", "model.layers=110",
                               "--set", "model.width=32", "--set", "model.sequence=8", "--set", "train.batch_size=2",
                               "--set", "data.train_samples=64", "--set", "data.test_samples=2"});
  ASSERT_EQ(r.code, 0) << r.err;
  std::printf("planned in %.2f s\n", nlohmann::json::parse(r.out)["plan_seconds"].get<double>());
}

}  // namespace
}  // namespace lathe::test
