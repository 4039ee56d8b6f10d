#include "comm/cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace lathe::comm {
namespace {

namespace fs = std::filesystem;

TEST(Cores, ThreadsPerRank) {
  struct Row {
    const char* what;
    Cores cores;
    int local_size;
    const char* launcher;
    int threads;
  };
  const Row rows[] = {
      {"one process", {.mask = 8, .all = 8}, 1, "", 8},
      {"taskset", {.mask = 3, .all = 8}, 1, "", 3},
      {"not bound: ranks share the host", {.mask = 32, .all = 32}, 4, "Open MPI", 8},
      {"not bound, and no whole share", {.mask = 32, .all = 32}, 5, "Open MPI", 6},
      {"more ranks than processors", {.mask = 2, .all = 2}, 4, "Open MPI", 1},
      {"bound to cores", {.mask = 1, .all = 32}, 4, "Open MPI", 1},
      {"bound to sockets, two ranks on each", {.mask = 16, .all = 32}, 4, "Open MPI", 8},
      {"a host that the launcher says nothing of", {.mask = 8, .all = 8}, 0, "MPICH", 8},
      {"srun -c 4, bound", {.mask = 4, .all = 32, .per_task = 4}, 2, "Slurm", 4},
      {"srun -c 4, not bound", {.mask = 32, .all = 32, .per_task = 4}, 2, "Slurm", 4},
      {"srun -c 4 in a mask of 2", {.mask = 2, .all = 2, .per_task = 4}, 1, "Slurm", 2},
      {"a batch script with -c 4: it has the whole job", {.mask = 32, .all = 32, .per_task = 4}, 1, "", 32},
      {"quota of a container", {.mask = 32, .all = 32, .quota = 6.5}, 1, "", 6},
      {"quota that ranks share", {.mask = 32, .all = 32, .quota = 6.5}, 2, "Open MPI", 3},
      {"quota of less than one", {.mask = 32, .all = 32, .quota = 0.5}, 2, "Open MPI", 1},
  };
  for (const Row& r : rows) {
    Launch l;
    l.local_size = r.local_size;
    l.launcher = r.launcher;
    EXPECT_EQ(threads_per_rank(r.cores, l), r.threads) << r.what;
  }
}

class ControlGroups : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("lathe_cores_" + std::to_string(getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  Cores find(const char* per_task = nullptr) {
    return find_cores([&](const char*) { return per_task; }, root_ / "membership", root_);
  }

  fs::path root_;
};

TEST_F(ControlGroups, NoneAtAll) {
  const Cores c = find();
  EXPECT_GE(c.mask, 1);
  EXPECT_GE(c.all, c.mask);
  EXPECT_EQ(c.quota, 0);
  EXPECT_EQ(c.per_task, 0);
}

TEST_F(ControlGroups, Version2TakesTheSmallestOnThePath) {
  write("membership", "0::/job/step\n");
  write("cpu.max", "max 100000\n");
  write("job/cpu.max", "150000 100000\n");
  write("job/step/cpu.max", "400000 100000\n");
  EXPECT_EQ(find().quota, 1.5);
  write("job/step/cpu.max", "max 100000\n");
  EXPECT_EQ(find().quota, 1.5);
}

TEST_F(ControlGroups, Version1) {
  write("membership", "4:cpu,cpuacct:/job\n5:cpuset:/job\n");
  write("cpu/job/cpu.cfs_quota_us", "300000\n");
  write("cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(find().quota, 3);
  write("cpu/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(find().quota, 0);
}

// What the ranks share is never less than this one's mask.
TEST_F(ControlGroups, Processors) {
  const Cores before = find();
  for (const char* list : {"0", "0-1023", "0-3,8,10-11", "", "x", "3-1", "0-"}) {
    write("cpuset.cpus.effective", list);
    const Cores c = find();
    EXPECT_GE(c.all, c.mask) << list;
    EXPECT_LE(c.all, before.all) << list;
  }
}

TEST_F(ControlGroups, PerTask) {
  EXPECT_EQ(find("4").per_task, 4);
  for (const char* bad : {"x", "0", "-1", "4x"}) EXPECT_THROW(find(bad), UserError) << bad;
}

}  // namespace
}  // namespace lathe::comm
