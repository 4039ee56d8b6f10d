#include "compile/job_script.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "base/checked.h"
#include "recipe/recipe.h"

namespace lathe {
namespace {

Compiled compiled(int ranks) {
  const Recipe r = parse_recipe(R"(
    data = { source = "synthetic", train_samples = 256 }
    model = { family = "mlp", hidden = [16] }
    train = { batch_size = 32, steps = 5 }
    device.threads = 1
  )",
                                "job.toml");
  CompileOptions o;
  o.mesh = {ranks, 0};
  return compile(r, describe_data(r), o);
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(JobScript, AsksForWhatThePlanSays) {
  const Compiled c = compiled(8);
  JobOptions o;
  o.recipe = "my recipe.toml";
  o.sets = {"train.steps=5", "data.path=it's here"};
  o.out = "/scratch/run";
  o.nodes = 2;
  o.ranks_per_node = 4;
  o.threads = 3;
  o.minutes = 90;
  o.partition = "gpu";
  const int64_t before = host_bytes_of_rank(c);
  const std::string text = job_script(c, o);
  for (const char* part : {"#SBATCH --nodes=2\n", "#SBATCH --ntasks-per-node=4\n", "#SBATCH --cpus-per-task=3\n",
                           "#SBATCH --time=01:30:00\n", "#SBATCH --signal=USR1@120\n", "#SBATCH --requeue\n",
                           "#SBATCH --partition=gpu\n", "SLURM_KILL_BAD_EXIT=1", "'my recipe.toml'",
                           "--set 'data.path=it'\\''s here'", "--out /scratch/run --resume", "scontrol requeue"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  // What is outside of the plan is estimated from what this process has now, which grows.
  long long mib = 0;
  const size_t at = text.find("#SBATCH --mem=");
  ASSERT_NE(at, std::string::npos) << text;
  ASSERT_EQ(std::sscanf(text.c_str() + at, "#SBATCH --mem=%lldM\n", &mib), 1) << text;
  const auto node_mib = [](int64_t rank) { return static_cast<double>(ceil_div(4 * rank, int64_t{1} << 20)); };
  EXPECT_GE(static_cast<double>(mib), 0.99 * node_mib(before)) << text;
  EXPECT_LE(static_cast<double>(mib), 1.01 * node_mib(host_bytes_of_rank(c))) << text;
  EXPECT_GT(host_bytes_of_rank(c), c.memory().total());
  EXPECT_FALSE(has(text, "--account"));
}

// A shell reads it as it is meant.
TEST(JobScript, IsAScript) {
  JobOptions o;
  o.recipe = "a'b $(touch /tmp/never) `x`.toml";
  o.out = "run";
  const std::string text = job_script(compiled(1), o);
  std::FILE* shell = popen("bash -n", "w");
  ASSERT_TRUE(shell);
  std::fwrite(text.data(), 1, text.size(), shell);
  EXPECT_EQ(pclose(shell), 0);
}

TEST(JobScript, RefusesWhatWouldBreakIt) {
  const Compiled c = compiled(1);
  for (const auto& change : {+[](JobOptions& o) { o.partition = "a b"; }, +[](JobOptions& o) { o.account = "x\n#"; },
                             +[](JobOptions& o) { o.mpi = "-rm"; }, +[](JobOptions& o) { o.minutes = 1; }}) {
    JobOptions o;
    o.recipe = "mlp";
    change(o);
    EXPECT_THROW(job_script(c, o), UserError);
  }
}

// Libraries of MPI take 11 to 69 MiB in a rank, which the plan does not see.
TEST(JobScript, LeavesRoomForMpi) {
  EXPECT_GT(host_bytes_of_rank(compiled(2)), host_bytes_of_rank(compiled(1)) + (200 << 20));
}

// More ranks need less each.
TEST(JobScript, MemoryFallsWithTheRanks) { EXPECT_LT(compiled(8).memory().arena, compiled(1).memory().arena); }

}  // namespace
}  // namespace lathe
