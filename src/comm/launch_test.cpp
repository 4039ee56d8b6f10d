#include "comm/launch.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "base/error.h"
#include "comm/mpi_library.h"

namespace lathe::comm {
namespace {

// Of "NAME=value NAME=value".
Launch launch_of(const std::string& environment) {
  std::map<std::string, std::string> table;
  std::istringstream words(environment);
  for (std::string word; words >> word;) table[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  const auto lookup = [&](const char* name) {
    const auto found = table.find(name);
    return found == table.end() ? nullptr : found->second.c_str();
  };
  return find_launch(lookup, "host");
}

const std::string kMpirun =
    "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 ";
const std::string kHydra = "PMI_RANK=1 PMI_SIZE=2 PMI_FD=9 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1 ";
const std::string kHelper = "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 ";  // of mpirun, started by srun
const std::string kSrun = "SLURM_STEP_ID=12 SLURM_TASKS_PER_NODE=2(x3),1 ";
const std::string kTorchrun = "RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h0 MASTER_PORT=29500 ";

// Variables as the launchers set them; of Slurm 22.05, Open MPI 4.1 and 5.0, MPICH 4.0 and torchrun 2.
TEST(Launch, Launchers) {
  struct Row {
    const char* what;
    std::string environment;
    const char* expected;  // launcher: rank/size, local rank/size, first family of MPI libraries
  };
  const Row rows[] = {
      {"nothing", "", ": 0/1, 0/1, ompi"},
      {"mpirun of Open MPI", kMpirun, "Open MPI: 3/4, 1/2, ompi"},
      {"version 5", kMpirun + "PMIX_RANK=3 PMIX_NAMESPACE=prterun-h-1@1", "Open MPI: 3/4, 1/2, ompi"},
      {"the same in a Slurm job", kMpirun + kHelper, "Open MPI: 3/4, 1/2, ompi"},
      {"mpirun of MPICH", kHydra, "MPICH: 1/2, 1/2, mpich"},
      {"the same in a Slurm job", kHydra + kHelper, "MPICH: 1/2, 1/2, mpich"},
      {"another launcher, which says nothing of hosts", "PMI_RANK=1 PMI_SIZE=2", "MPICH: 1/2, 0/0, mpich"},
      {"srun --mpi=pmix", kSrun + "SLURM_PROCID=5 SLURM_NTASKS=7 SLURM_LOCALID=1 SLURM_NODEID=2 PMIX_RANK=5",
       "Slurm: 5/7, 1/2, ompi"},
      {"srun --mpi=pmi2, the last node",
       kSrun + "SLURM_PROCID=6 SLURM_NTASKS=7 SLURM_LOCALID=0 SLURM_NODEID=3 PMI_RANK=6 PMI_SIZE=7 PMI_FD=9",
       "Slurm: 6/7, 0/1, mpich"},
      {"srun of 1 task in a job of 7",
       kSrun + "SLURM_PROCID=0 SLURM_NTASKS=7 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1 SLURM_LOCALID=0",
       "Slurm: 0/1, 0/1, ompi"},
      {"a batch script", "SLURM_JOB_ID=9 SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_LOCALID=0", ": 0/1, 0/1, ompi"},
      {"a batch script whose step has a number", "SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_STEP_ID=4294967291",
       ": 0/1, 0/1, ompi"},
      {"salloc", "SLURM_JOB_ID=9 SLURM_NTASKS=8 SLURM_TASKS_PER_NODE=4(x2)", ": 0/1, 0/1, ompi"},
      {"torchrun", kTorchrun, "torchrun: 2/4, 0/2, ompi"},
      {"by hand, as torchrun does", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=h0 MASTER_PORT=1", "torchrun: 1/2, 0/0, ompi"},
      {"by hand on one host", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1", "torchrun: 1/2, 1/2, ompi"},
      {"by hand, one of one", "RANK=0 WORLD_SIZE=1", "torchrun: 0/1, 0/1, ompi"},
      {"a RANK of something else", "RANK=general", ": 0/1, 0/1, ompi"},
  };
  for (const Row& r : rows) {
    const Launch l = launch_of(r.environment);
    EXPECT_EQ(fmt::format("{}: {}/{}, {}/{}, {}", l.launcher, l.rank, l.size, l.local_rank, l.local_size,
                          mpi_families(l).front()),
              r.expected)
        << r.what;
    EXPECT_EQ(l.host, "host");
    EXPECT_EQ(mpi_families(l).size(), 3u);
  }
  EXPECT_EQ(launch_of(kTorchrun).address, "h0");
  EXPECT_EQ(launch_of(kTorchrun).port, 29500);
  EXPECT_EQ(launch_of(kTorchrun + "TORCHELASTIC_RUN_ID=none ").port, 29501) << "torchrun itself listens at 29500";
  EXPECT_FALSE(find_launch().host.empty());
}

TEST(Launch, Contradictions) {
  struct Row {
    const char* environment;
    const char* text;  // a part of the error
  };
  const Row rows[] = {
      {"OMPI_COMM_WORLD_RANK=x OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK: expected a number, got \"x\""},
      {"OMPI_COMM_WORLD_RANK=-1 OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK: expected a number, got \"-1\""},
      {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK is 2 and OMPI_COMM_WORLD_SIZE is 2"},
      {"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_RANK is set and OMPI_COMM_WORLD_SIZE is not"},
      {"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_SIZE is set and OMPI_COMM_WORLD_RANK is not"},
      {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=99999999999", "OMPI_COMM_WORLD_SIZE: 99999999999 processes"},
      {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=999999999999999999999", "OMPI_COMM_WORLD_SIZE: expected a number"},
      {"PMI_RANK=1 MPI_LOCALNRANKS=1", "PMI_RANK is set and PMI_SIZE is not"},
      {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=2", "MPI_LOCALRANKID is 2 and MPI_LOCALNRANKS is 2"},
      {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=3 MPI_LOCALRANKID=2", "3 of 2 processes"},
      {"SLURM_PROCID=0 SLURM_STEP_ID=0", "SLURM_PROCID is set and SLURM_NTASKS is not"},
      {"SLURM_PROCID=0 SLURM_NTASKS=two SLURM_STEP_ID=0", "SLURM_NTASKS: expected a number, got \"two\""},
      {"SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_LOCALID=2 SLURM_TASKS_PER_NODE=2",
       "SLURM_LOCALID is 2 and SLURM_TASKS_PER_NODE is 2"},
      {"SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 PMIX_RANK=1", "PMIX_RANK is 1 and SLURM_PROCID is 0"},
      {"WORLD_SIZE=2", "WORLD_SIZE is set and RANK is not"},
      {"WORLD_SIZE=2 RANK=0 MASTER_ADDR=h0 MASTER_PORT=70000", "MASTER_PORT: expected a port below 65535, got 70000"},
      {"WORLD_SIZE=2 RANK=0 MASTER_ADDR=h0", "RANK and WORLD_SIZE are set and MASTER_PORT is not"},
      {"WORLD_SIZE=2 RANK=0 MASTER_PORT=1", "RANK and WORLD_SIZE are set and MASTER_ADDR is not"},
      {"PMIX_RANK=1", "PMIX_RANK is 1 and no variable says how many"},
  };
  for (const Row& r : rows) {
    std::string text = "nothing was thrown";
    try {
      launch_of(r.environment);
    } catch (const UserError& e) {
      text = e.what();
    }
    EXPECT_NE(text.find(r.text), std::string::npos) << r.environment << ": " << text;
  }
}

// Odd lists of tasks are taken for none, and never read past their end.
TEST(Launch, TasksOfNodes) {
  for (const char* list :
       {"", "x", "2(", "2(x", "2(x)", "2(x3", "2(x0)", "(x3)", ",", "2,", "-2", "99999999999999999999"})
    EXPECT_EQ(launch_of(std::string("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_ID=0 SLURM_NODEID=5 "
                                    "SLURM_TASKS_PER_NODE=") +
                        list)
                  .local_size,
              0)
        << list;
}

// Of a folder without plugins no library is opened.
TEST(MpiLibrary, NoPlugins) {
  std::string text;
  try {
    mpi_library({.setting = "", .folders = {"/nonexistent"}, .launch = {}}, 1);
  } catch (const UserError& e) {
    text = e.what();
  }
  for (const char* name : {"lathe_mpi_ompi.so", "lathe_mpi_mpich.so", "lathe_mpi_abi.so", "not in /nonexistent"})
    EXPECT_NE(text.find(name), std::string::npos) << text;
  EXPECT_EQ(mpi_version(), "");
}

}  // namespace
}  // namespace lathe::comm
