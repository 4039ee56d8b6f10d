// lathe predict RUN --prompt: texts that a model writes, on every device.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "process.h"

namespace lathe::test {
namespace {

// One small model for all of them.
class Texts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    run_ = dir_->path("run");
    trained_ = run_lathe({"train",
                          "gpt_tiny",
                          "--quiet",
                          "--out",
                          run_,
                          "--set",
                          "data.path=",
                          "--set",
                          "model.layers=1",
                          "--set",
                          "model.width=32",
                          "--set",
                          "model.sequence=24",
                          "--set",
                          "model.vocab=128",
                          "--set",
                          "train.steps=80",
                          "--set",
                          "data.test_samples=8",
                          "--set",
                          "train.batch_size=8",
                          "--set",
                          "checkpoint.best=true",
                          "--set",
                          "data.validation=0.001",
                          "--set",
                          "optimizer.lr=1e-2"});
  }
  static void TearDownTestSuite() {
    delete dir_;
    dir_ = nullptr;
  }
  void SetUp() override { ASSERT_EQ(trained_.code, 0) << trained_.err; }

  static Outcome predict(std::vector<std::string> args) {
    args.insert(args.begin(), {"predict", run_});
    return run_lathe(args);
  }
  static nlohmann::json answer(std::vector<std::string> args) {
    args.push_back("--json");
    const Outcome o = predict(args);
    EXPECT_EQ(o.code, 0) << o.err;
    return nlohmann::json::parse(o.out).at(0);
  }
  static std::string text(const std::vector<std::string>& args) { return answer(args)["text"]; }

  static inline TempDir* dir_ = nullptr;
  static inline std::string run_;
  static inline Outcome trained_;
};

TEST_F(Texts, WritesWordsOfTheLanguageItLearned) {
  const std::string t = text({"--prompt", "the ", "--tokens", "60", "--temperature", "0.3"});
  ASSERT_EQ(t.size(), 60u);
  const std::vector<uint8_t> bytes = answer({"--prompt", "the ", "--tokens", "60", "--temperature", "0.3"})["bytes"];
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), t);
  EXPECT_NE(t.find(" "), std::string::npos) << t;
  EXPECT_NE(t.find("the "), std::string::npos) << t;
}

TEST_F(Texts, EqualSeedsWriteEqualTexts) {
  const std::vector<std::string> base{"--prompt", "the ", "--tokens", "40", "--temperature", "1.5"};
  const auto with = [&](const std::string& seed) {
    std::vector<std::string> args = base;
    args.insert(args.end(), {"--seed", seed});
    return text(args);
  };
  EXPECT_EQ(with("5"), with("5"));
  EXPECT_NE(with("5"), with("6"));
  EXPECT_EQ(with("0"), text(base));
}

TEST_F(Texts, GreedyIsTheSameByAnyOption) {
  const auto greedy = text({"--prompt", "the r", "--tokens", "30", "--temperature", "0"});
  EXPECT_EQ(greedy, text({"--prompt", "the r", "--tokens", "30", "--top-k", "1", "--seed", "9"}));
  EXPECT_EQ(greedy, text({"--prompt", "the r", "--tokens", "30", "--top-p", "1e-6", "--seed", "9"}));
  EXPECT_EQ(greedy, text({"--prompt", "the r", "--tokens", "30", "--temperature", "0", "--best"}));
}

TEST_F(Texts, AllDevicesWriteTheSame) {
  const auto on = [&](const char* device) {
    return text({"--prompt", "the ", "--tokens", "20", "--temperature", "0.9", "--device", device});
  };
  const std::string expected = on("cpu");
  EXPECT_EQ(on("ref"), expected);
  if (!find_backend("opencl").devices().empty()) {
    EXPECT_EQ(on("opencl"), expected);
  }
}

TEST_F(Texts, ALongPromptIsSeenByItsEnd) {
  // Beyond the context of 24 bytes, what came before makes no difference.
  const std::string end = "the old fox finds the re";
  ASSERT_EQ(end.size(), 24u);
  EXPECT_EQ(text({"--prompt", end, "--tokens", "20"}), text({"--prompt", "xyz. " + end, "--tokens", "20"}));
  // Within it, the last byte of a prompt decides: padding after it does not.
  const auto p = answer({"--prompt", "the", "--tokens", "1"});
  EXPECT_EQ(p["context"], 24);
  const std::vector<double> next = p["first_probabilities"];
  ASSERT_EQ(next.size(), 128u);
  EXPECT_GT(next[' '], 0.25);
}

TEST_F(Texts, StreamsPromptAndText) {
  const std::string expected = text({"--prompt", "the ", "--tokens", "25", "--seed", "2"});
  const Outcome o = predict({"--prompt", "the ", "--tokens", "25", "--seed", "2"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "the " + expected + "\n");
}

TEST_F(Texts, NeedsNoTrainingData) {
  // The run was trained on generated text; another file that is not there does not matter.
  EXPECT_EQ(text({"--prompt", "the ", "--tokens", "5", "--set", "data.path=/nowhere/book.txt"}),
            text({"--prompt", "the ", "--tokens", "5"}));
}

TEST_F(Texts, ErrorsSayWhatIsWrong) {
  struct Case {
    std::vector<std::string> args;
    int code;
    std::string part;
  };
  std::ofstream(dir_->path("good.txt")) << "the ";
  std::ofstream(dir_->path("bad.txt")) << "caf\xc3\xa9";
  const Case cases[] = {
      {{"--prompt", "a", "--seed", "99999999999999999999"}, 64, "lathe: error: --seed: expected a whole number"},
      {{"--prompt", "a", "--top-k", "99999999999999999999"}, 64, "--top-k: expected a whole number"},
      {{"--prompt", "a", "--out", "folder"}, 64, "--out"},
      {{"test:0"}, 64, "expected --prompt TEXT, or a text file"},
      {{dir_->path("good.txt"), dir_->path("bad.txt")}, 65, "bad.txt: the byte 195"},
      {{"--prompt", ""}, 65, "--prompt: is empty"},
      {{"--prompt", "caf\xc3\xa9"}, 65, "byte 195 at 3 is outside of the model's vocabulary, which ends at 127"},
      {{}, 64, "--prompt"},
      {{"--prompt", "a", "--temperature", "-1"}, 64, "--temperature: expected"},
      {{"--prompt", "a", "--top-p", "0"}, 64, "--top-p: expected"},
      {{"--prompt", "a", "--top-k", "-3"}, 64, "--top-k: expected"},
      {{"--prompt", "a", "--tokens", "0"}, 64, "--tokens"},
      {{"/nowhere/start.txt"}, 66, "/nowhere/start.txt"},
  };
  for (const Case& c : cases) {
    const Outcome o = predict(c.args);
    EXPECT_EQ(o.code, c.code) << c.part << o.err;
    EXPECT_NE(o.err.find(c.part), std::string::npos) << o.err;
    EXPECT_EQ(o.out, "") << c.part;
  }
}

TEST_F(Texts, ImageModelsTakeNoPrompt) {
  const TempDir dir;
  const Outcome t = run_lathe({"train", "mlp", "--quiet", "--out", dir.path("run"), "--set", "data.source=synthetic",
                               "--set", "train.steps=2", "--set", "model.hidden=[8]"});
  ASSERT_EQ(t.code, 0) << t.err;
  for (const std::vector<std::string>& extra :
       {std::vector<std::string>{"--prompt", "x"}, {"test:0", "--top-k", "3"}, {"test:0", "--seed", "3"}}) {
    std::vector<std::string> args{"predict", dir.path("run")};
    args.insert(args.end(), extra.begin(), extra.end());
    const Outcome o = run_lathe(args);
    EXPECT_EQ(o.code, 64);
    EXPECT_NE(o.err.find("for text models only"), std::string::npos) << o.err;
  }
}

}  // namespace
}  // namespace lathe::test
