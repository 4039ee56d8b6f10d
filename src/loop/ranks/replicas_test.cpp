#include "loop/ranks/replicas.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "comm/threads.h"
#include "io/test_util.h"
#include "loop/trainer.h"

namespace lathe::replicas_test {
namespace {

TEST(Replicas, WhoIsWrongIsToldByMost) {
  const std::vector<std::string> names{"first.weight", "last.weight"};
  const auto describe = [&](const std::vector<uint64_t>& hashes) {
    return describe_difference(names, hashes, static_cast<int>(hashes.size() / names.size()));
  };
  EXPECT_EQ(describe({7, 8, 7, 9, 7, 8}), "rank 1 has other bits of \"last.weight\" than the other 2");
  EXPECT_EQ(describe({7, 8, 7, 8, 6, 9}), "rank 2 has other bits of \"first.weight\" and of 1 more than the other 2");
  EXPECT_EQ(describe({1, 8, 7, 8, 7, 8, 2, 8, 7, 8}),
            "ranks 0 and 3 have other bits of \"first.weight\" than the other 3");
  EXPECT_EQ(describe({7, 8, 6, 8}),
            "ranks 0 and 1 have different bits of \"first.weight\", and which of them are wrong cannot be told");
  EXPECT_EQ(describe({7, 8, 6, 8, 6, 8, 7, 8}),
            "ranks 0, 1, 2 and 3 have different bits of \"first.weight\", and which of them are wrong cannot be told");
}

constexpr int kSteps = 16, kFlip = 7;  // the bit changes after step kFlip

Recipe recipe(const Sets& sets) {
  return parse_recipe(R"(
    data = { source = "synthetic", shape = [4, 4, 1], classes = 3, train_samples = 48, test_samples = 8 }
    model = { family = "mlp", hidden = [8] }
    optimizer = { name = "adam", lr = 0.01 }
    train = { steps = 16, batch_size = 12, log_every = 1, eval_every = 0 }  # kSteps
    checkpoint = { every_steps = 0, every_epochs = 0 }
    device.threads = 1
  )",
                      "replicas.toml", sets);
}

struct Flip {
  int rank = -1;      // whose bit; -1: none changes
  std::string state;  // of which tensor: the first whose name ends with it
};

// Changes a bit of a float in the middle of the tensor, and returns the tensor's name.
std::string flip_bit(Executor& e, const std::string& end) {
  for (const Port& p : e.set().state) {
    if (!p.name.ends_with(end)) continue;
    std::vector<std::byte> bytes(static_cast<size_t>(p.type.bytes()));
    e.read_state(p.name, bytes);
    bytes[bytes.size() / 8 * 4 + 2] ^= std::byte{4};
    e.write_state(p.name, bytes);
    return p.name;
  }
  return "";
}

struct Ended {
  std::vector<std::string> errors;  // by rank; empty: it came to its end
  std::string state;                // whose bit was changed
};

// A run on ranks in threads, in one of which a bit changes.
Ended run(const Recipe& r, int ranks, const std::string& out, const Flip& flip, bool resume = false) {
  comm::ThreadOptions threads;
  threads.timeout = 60;
  const auto groups = comm::thread_groups(ranks, threads);
  Ended ended;
  ended.errors.resize(groups.size());
  std::vector<std::thread> running;
  for (size_t rank = 0; rank < groups.size(); ++rank)
    running.emplace_back([&, rank] {
      TrainOptions o;
      o.out = out;
      o.resume = resume;
      o.handle_signals = false;
      o.group = groups[rank].get();
      if (static_cast<int>(rank) == flip.rank)
        o.on_step = [&](int64_t step, Executor& e) {
          if (step == kFlip) ended.state = flip_bit(e, flip.state);
        };
      try {
        train(r, o);
      } catch (const Error& e) {
        ended.errors[rank] = e.what();
        EXPECT_EQ(e.exit_code(), Exit::os_error) << e.what();
        groups[rank]->abort(e.what());
      }
    });
  for (std::thread& t : running) t.join();
  return ended;
}

// Of any rank, in weights and in what the optimizer has beside them: the same words on all ranks.
TEST(Replicas, AFlippedBitIsFoundAndNamed) {
  const io::TempDir dir;
  struct Case {
    const char* state;
    int every, found, before;  // steps: between two comparisons, of the one that finds it, of the one before
  };
  int number = 0;
  // A moment spoils its weight in the next step, so it is compared at once.
  for (const auto& [state, every, found, before] :
       {Case{".weight", 5, 10, 5}, {".bias", 3, 9, 6}, {".exp_avg", 7, 7, -1}})
    for (const int faulty : {0, 1, 2}) {
      const Ended ended = run(recipe({fmt::format("parallel.check_replicas={}", every)}), 3,
                              dir / std::to_string(number++), {faulty, state});
      ASSERT_NE(ended.state, "") << state;
      const std::string start =
          fmt::format("after step {} rank {} has other bits of \"{}\" than the other 2{}", found, faulty, ended.state,
                      before < 0 ? "" : fmt::format("; they were the same after step {}", before));
      for (const std::string& e : ended.errors) {
        EXPECT_EQ(e, ended.errors[0]);
        EXPECT_TRUE(e.starts_with(start)) << e << "\n" << start;
        EXPECT_NE(e.find("--resume"), std::string::npos) << e;
      }
    }
}

TEST(Replicas, OfTwoNobodyIsNamed) {
  const io::TempDir dir;
  const Ended ended = run(recipe({"parallel.check_replicas=1"}), 2, dir / "two", {1, ".weight"});
  for (const std::string& e : ended.errors)
    EXPECT_NE(e.find("after step 7 ranks 0 and 1 have different bits of"), std::string::npos) << e;
}

// A checkpoint is compared before it is written: what --resume finds is good, and ends as a run without fault does.
TEST(Replicas, NoCheckpointOfRanksThatDiffer) {
  const io::TempDir dir;
  const Recipe r = recipe({"checkpoint.every_steps=4", "parallel.check_replicas=1000"});
  for (const std::string& e : run(r, 3, dir / "whole", {}).errors) EXPECT_EQ(e, "");
  for (const std::string& e : run(r, 3, dir / "run", {0, ".weight"}).errors)
    EXPECT_NE(e.find("after step 8 rank 0 has other bits"), std::string::npos) << e;
  const auto has = [&](const char* step) {
    return std::filesystem::exists((dir / "run/checkpoints/step-0000000") + step);
  };
  EXPECT_TRUE(has("04"));
  EXPECT_FALSE(has("08"));
  for (const std::string& e : run(r, 3, dir / "run", {}, true).errors) EXPECT_EQ(e, "");
  const auto files = [&](const std::string& out) {
    const std::string at = fmt::format("{}/checkpoints/step-{:09}", dir / out, kSteps);
    return io::get_file(at + "/model.safetensors") + io::get_file(at + "/optimizer.safetensors") +
           io::get_file((dir / out) + "/metrics.jsonl");
  };
  EXPECT_GT(files("whole").size(), 1000u);
  EXPECT_TRUE(files("whole") == files("run"));
}

// Ranks that have parts, sums of gradients that are each rank's own, averages, one rank alone: nothing is wrong.
TEST(Replicas, WhatMayDifferIsNotCompared) {
  const io::TempDir dir;
  int number = 0;
  for (const Sets& sets :
       {Sets{"parallel.shard=3", "parallel.shard_least=1"},
        Sets{"parallel.shard=1", "parallel.shard_least=1", "train.ema=0.9"},
        Sets{"train.accumulate=3", "train.batch_size=4"},
        Sets{"train.accumulate=3", "train.batch_size=4", "parallel.shard=2", "parallel.shard_least=1"},
        Sets{"parallel.same_bits=true"}})
    for (const int ranks : {1, 2, 4}) {
      Sets all = sets;
      all.push_back("parallel.check_replicas=1");
      for (const std::string& e : run(recipe(all), ranks, dir / std::to_string(number++), {}).errors)
        EXPECT_EQ(e, "") << sets[0] << " on " << ranks;
    }
}

TEST(Replicas, ZeroComparesNothing) {
  const io::TempDir dir;
  for (const std::string& e :
       run(recipe({"parallel.check_replicas=0", "checkpoint.every_steps=4"}), 3, dir / "run", {1, ".weight"}).errors)
    EXPECT_EQ(e, "");
}

}  // namespace
}  // namespace lathe::replicas_test
