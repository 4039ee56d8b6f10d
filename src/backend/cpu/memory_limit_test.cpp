#include "backend/cpu/memory_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace lathe::cpu {
namespace {

namespace fs = std::filesystem;

class ControlGroups : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("lathe_cgroup_" + std::to_string(getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  int64_t limit() { return control_group_limit((root_ / "self").string(), root_.string(), 1000); }

  fs::path root_;
};

TEST_F(ControlGroups, NoneWhereNothingIsSaid) {
  EXPECT_EQ(limit(), 1000);
  write("self", "0::/");
  write("memory.max", "max");
  EXPECT_EQ(limit(), 1000);
}

TEST_F(ControlGroups, RootOfAContainer) {
  write("self", "0::/../elsewhere");
  write("memory.max", "400");
  EXPECT_EQ(limit(), 400);
}

TEST_F(ControlGroups, ParentOfABatchJobCounts) {
  write("self", "0::/system.slice/slurmstepd.scope/job_7/step_0");
  write("system.slice/slurmstepd.scope/job_7/step_0/memory.max", "max");
  write("system.slice/slurmstepd.scope/job_7/memory.max", "300");
  write("system.slice/memory.max", "700");
  EXPECT_EQ(limit(), 300);
}

TEST_F(ControlGroups, VersionOne) {
  write("self", "5:cpu,cpuacct:/slurm\n4:memory:/slurm/uid_1/job_2\n1:name=systemd:/x");
  write("memory/slurm/uid_1/job_2/memory.limit_in_bytes", "250");
  write("memory/slurm/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(limit(), 250);
}

TEST(UsableMemory, IsPartOfTheMachine) { EXPECT_GT(usable_memory(), int64_t{64} << 20); }

}  // namespace
}  // namespace lathe::cpu
