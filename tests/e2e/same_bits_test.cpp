// Equal recipe, seed and instruction set: byte-identical weights, whatever the threads and the prefetch depth.
#include <gtest/gtest.h>

#include "process.h"

namespace lathe::test {
namespace {

using Args = std::vector<std::string>;

std::string weights(const std::string& recipe, const Args& sets, const Args& env = {}) {
  const TempDir dir;
  Args args{"train",
            recipe,
            "--quiet",
            "--out",
            dir.path("run"),
            "--set",
            "train.steps=12",
            "--set",
            "train.eval_every=0",
            "--set",
            "data.test_samples=50"};
  for (const std::string& s : sets) args.insert(args.end(), {"--set", s});
  const Outcome r = run_lathe(args, env);
  EXPECT_EQ(r.code, 0) << r.err;
  const std::string at = newest_checkpoint(dir.path("run"));
  return read_file(at + "/model.safetensors") + read_file(at + "/optimizer.safetensors");
}

Args join(Args a, const Args& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void expect_same(const std::string& recipe, const Args& sets) {
  const std::string one = weights(recipe, join(sets, {"device.threads=1", "data.prefetch=1", "data.threads=1"}));
  ASSERT_GT(one.size(), 1000u);
  for (const Args& variant :
       {Args{"device.threads=2", "data.prefetch=3"}, Args{"device.threads=8", "data.prefetch=7", "data.threads=4"}})
    EXPECT_TRUE(one == weights(recipe, join(sets, variant)))
        << recipe << " with " << variant[0] << " and " << variant[1];
  EXPECT_FALSE(one == weights(recipe, join(sets, {"seed=99"}))) << "the seed has no effect";
}

TEST(SameBits, Mlp) { expect_same("mlp", {"data.source=synthetic", "data.train_samples=300"}); }

TEST(SameBits, CnnWithNormDropoutAugmentation) {
  expect_same("fashion_mnist", {"data.source=synthetic", "data.train_samples=100", "train.batch_size=32",
                                "model.dropout=0.3", "data.augment.rotate=10", "data.augment.cutout=4"});
}

TEST(SameBits, Gpt) {
  expect_same("gpt_tiny", {"data.path=", "model.layers=2", "model.width=32", "model.sequence=24", "train.batch_size=4",
                           "data.train_samples=50", "model.dropout=0.1"});
}

TEST(SameBits, Accumulation) {
  expect_same("mlp", {"data.source=synthetic", "data.train_samples=300", "train.batch_size=32", "train.accumulate=4",
                      "train.clip_norm=1"});
}

TEST(SameBits, ForEachInstructionSet) {
  // The sets differ from each other; within each, threads do not matter.
  for (const char* isa : {"sse4", "avx2", "avx512"}) {
    const Args env{std::string("LATHE_ISA=") + isa};
    if (run_lathe({"recipes"}, env).code != 0) {
      std::printf("[SKIP] this machine has no %s\n", isa);
      continue;
    }
    const Args sets{"data.source=synthetic", "data.train_samples=100", "train.batch_size=32"};
    EXPECT_TRUE(weights("fashion_mnist", join(sets, {"device.threads=1"}), env) ==
                weights("fashion_mnist", join(sets, {"device.threads=8"}), env))
        << isa;
  }
}

}  // namespace
}  // namespace lathe::test
