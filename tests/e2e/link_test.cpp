// The link between ranks: it is measured, buckets follow from it, and a run keeps them.
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "base/format_bytes.h"
#include "comm/socket.h"
#include "passes/bucket.h"
#include "process.h"
#include "recipe/recipe.h"

namespace lathe {
namespace {

using test::newest_checkpoint;
using test::read_file;
using test::run_lathe;
using test::TempDir;

int64_t bucket_of(const std::string& run) {
  return parse_recipe(read_file(run + "/recipe.toml"), "recipe.toml").passes.get<BucketOptions>().bytes.bytes;
}

test::Outcome train_small(const std::string& recipe, const std::string& out, const std::vector<std::string>& more) {
  std::vector<std::string> args{"train", recipe, "--out", out};
  for (const char* set : {"data.source=synthetic", "data.train_samples=300", "data.test_samples=30",
                          "train.batch_size=30", "device.threads=1"})
    args.insert(args.end(), {"--set", set});
  args.insert(args.end(), more.begin(), more.end());
  return run_lathe(args);
}

void replace_text_in(std::string& text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  ASSERT_NE(at, text.npos) << what;
  text.replace(at, what.size(), by);
}

// Processes over TCP, as torchrun starts them; what differs are their last arguments.
std::vector<test::Outcome> run_processes(const std::vector<std::string>& args,
                                         const std::vector<std::vector<std::string>>& last) {
  const std::string address = comm::Listener("127.0.0.1:0").address();  // free, and in a moment taken
  std::vector<std::future<test::Outcome>> running;
  for (size_t rank = 0; rank < last.size(); ++rank) {
    std::vector<std::string> own = args;
    own.insert(own.end(), last[rank].begin(), last[rank].end());
    const std::vector<std::string> env{fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", last.size()),
                                       "MASTER_ADDR=127.0.0.1",
                                       "MASTER_PORT=" + address.substr(address.rfind(':') + 1)};
    running.push_back(std::async(std::launch::async, [own, env] { return run_lathe(own, env); }));
  }
  std::vector<test::Outcome> out;
  for (auto& r : running) out.push_back(r.get());
  return out;
}

TEST(Link, ProcessesMeasureTheirs) {
  const TempDir dir;
  std::vector<std::string> args{"train", "mlp", "--out", dir.path("run")};
  for (const char* set : {"data.source=synthetic", "data.train_samples=90", "data.test_samples=30",
                          "train.batch_size=30", "train.steps=3", "device.threads=1"})
    args.insert(args.end(), {"--set", set});
  const auto same = run_processes(args, {{}, {}});
  for (const test::Outcome& r : same) EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(same[0].out.find("link: "), std::string::npos) << same[0].out;
  EXPECT_EQ(same[1].out, "");
  EXPECT_GT(bucket_of(dir.path("run")), 0);
  // Ranks that were told different sizes do not begin.
  args[3] = dir.path("other");
  const auto others = run_processes(args, {{}, {"--set", "parallel.bucket=96KiB"}});
  for (const test::Outcome& r : others) EXPECT_EQ(r.code, static_cast<int>(Exit::bad_recipe)) << r.err;
  EXPECT_NE((others[0].err + others[1].err).find("bucket = \"96KiB\""), std::string::npos) << others[0].err;
}

TEST(Link, PlansOfALaunchersRanksMeasureTheirs) {
  const auto ranks = run_processes({"plan", "mlp", "--json"}, {{}, {}});
  for (const test::Outcome& r : ranks) EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(ranks[1].out, "");
  const auto plan = nlohmann::json::parse(ranks[0].out);
  EXPECT_EQ(plan["ranks"], 2);
  EXPECT_EQ(plan["link"]["from"], "measured between the 2 ranks of torchrun");
  EXPECT_GT(plan["link"]["bytes_per_second"], 0);
}

TEST(Link, ARunKeepsItsBuckets) {
  const TempDir dir;
  const std::string run = dir.path("run"), recipe = run + "/recipe.toml";
  const auto first = train_small("mlp", run, {"--ranks", "3", "--set", "train.steps=3"});
  ASSERT_EQ(first.code, 0) << first.err;
  const int64_t measured = bucket_of(run);
  EXPECT_GT(measured, 0);
  EXPECT_NE(first.out.find("link: "), std::string::npos) << first.out;
  EXPECT_NE(first.out.find("; buckets of " + format_bytes(measured)), std::string::npos) << first.out;
  // No measurement gives this one.
  std::string text = read_file(recipe);
  replace_text_in(text, "bucket = \"" + size_text({measured}) + "\"", "bucket = \"96KiB\"");
  std::ofstream(recipe) << text;
  const auto more = [&](int steps, std::vector<std::string> args) {
    args.insert(args.end(), {"--resume", "--quiet", "--set", fmt::format("train.steps={}", steps)});
    const auto r = train_small("mlp", run, args);
    EXPECT_EQ(r.code, 0) << r.err;
  };
  more(6, {"--ranks", "3"});
  EXPECT_EQ(bucket_of(run), 96 << 10);
  more(9, {"--ranks", "2"});
  EXPECT_EQ(bucket_of(run), 96 << 10);
  more(12, {"--ranks", "3", "--set", "parallel.bucket=128KiB"});  // the user's wins
  EXPECT_EQ(bucket_of(run), 128 << 10);
  more(15, {"--ranks", "3", "--set", "parallel.bucket=auto"});
  EXPECT_NE(bucket_of(run), 128 << 10);
  // None of that makes another run of it.
  const auto eval = run_lathe({"eval", run, "--json"});
  EXPECT_EQ(eval.code, 0) << eval.err;
}

TEST(Link, TheRecipeOfARunGivesItsBits) {
  const TempDir dir;
  const auto weights = [&](const std::string& recipe, const std::string& out) {
    const auto r = train_small(recipe, out, {"--ranks", "3", "--quiet", "--set", "train.steps=5"});
    EXPECT_EQ(r.code, 0) << r.err;
    return read_file(newest_checkpoint(out) + "/model.safetensors");
  };
  const std::string a = weights("mlp", dir.path("a")), b = weights(dir.path("a") + "/recipe.toml", dir.path("b"));
  ASSERT_GT(a.size(), 1000u);
  EXPECT_TRUE(a == b);
  EXPECT_EQ(bucket_of(dir.path("a")), bucket_of(dir.path("b")));
}

TEST(Link, OneRankHasNone) {
  const TempDir dir;
  const auto r = train_small("mlp", dir.path("run"), {"--set", "train.steps=2"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out.find("link: "), std::string::npos) << r.out;
  EXPECT_EQ(bucket_of(dir.path("run")), 0);
}

TEST(Link, PlansPredictForTheLinkThatIsGiven) {
  const auto planned = [](const std::vector<std::string>& more) {
    std::vector<std::string> args{"plan", "mlp", "--json"};
    args.insert(args.end(), more.begin(), more.end());
    const auto r = run_lathe(args);
    EXPECT_EQ(r.code, 0) << r.err;
    return nlohmann::json::parse(r.out);
  };
  const auto slow = planned({"--ranks", "4", "--link", "50us,1Gbit/s"});
  EXPECT_DOUBLE_EQ(slow["link"]["seconds"], 50e-6);
  EXPECT_DOUBLE_EQ(slow["link"]["bytes_per_second"], 125e6);
  EXPECT_EQ(slow["bucket"], 256 << 10);  // 9 x 4 x 6250 bytes, and no less
  ASSERT_EQ(slow["scaling"].size(), 11u);
  EXPECT_EQ(slow["scaling"][10]["ranks"], 1024);
  for (size_t i = 1; i < 11; ++i) EXPECT_LE(slow["scaling"][i]["efficiency"], slow["scaling"][i - 1]["efficiency"]);
  const auto many = planned({"--ranks", "1500", "--link", "2us,12.5GB/s"});
  EXPECT_EQ(many["scaling"].back()["ranks"], 1500);
  EXPECT_LE(many["memory"].size(), 4u);
  EXPECT_EQ(planned({"--ranks", "4", "--link", "1us,1GB/s", "--set", "parallel.bucket=1MiB"})["bucket"], 1 << 20);
  const auto here = run_lathe({"plan", "mlp", "--ranks", "2"});
  EXPECT_EQ(here.code, 0) << here.err;
  EXPECT_NE(here.out.find("measured between two threads of this host"), std::string::npos) << here.out;
  EXPECT_NE(here.out.find("efficiency"), std::string::npos) << here.out;
}

TEST(Link, WrongLinksAreRefused) {
  for (const char* text : {"fast", "50us", "1Gbit/s", "50us,1Gbps", ""}) {
    const auto r = run_lathe({"plan", "mlp", "--ranks", "2", "--link", text});
    EXPECT_EQ(r.code, static_cast<int>(Exit::usage)) << text;
    EXPECT_NE(r.err.find("--link: expected a"), std::string::npos) << r.err;
  }
  EXPECT_EQ(run_lathe({"plan", "mlp", "--link", "50us,1Gbit/s"}).code, static_cast<int>(Exit::usage));
}

}  // namespace
}  // namespace lathe
