// Which of how many processes this one is, by the environment that its launcher set: Open MPI's mpirun, MPICH's (Hydra,
// also Intel's), Slurm's srun, torchrun. A process that no launcher started is one of one.
#pragma once

#include <functional>
#include <string>

namespace lathe::comm {

// The value of an environment variable, or nullptr.
using Lookup = std::function<const char*(const char*)>;

struct Launch {          // What the launcher says.
  int rank = 0;          // of this process
  int size = 1;          // processes
  int local_rank = 0;    // among those of the host
  int local_size = 1;    // processes on the host; 0: the launcher does not say
  std::string host;      // name of this host
  std::string launcher;  // "Open MPI", "MPICH", "Slurm", "torchrun"; empty: none
  std::string address;   // of rank 0 (MASTER_ADDR of torchrun); empty: the launcher does not say
  int port = 0;          // at that address; 0: the launcher does not say
  bool pmix = false;     // the launcher talks PMIx: Open MPI's way to find the other ranks
  bool pmi = false;      // it talks PMI: MPICH's
};

// Throws UserError, with the names of the variables, where they are not numbers or contradict each other.
//
// Where several launchers left variables, the innermost counts: mpirun starts its helpers with srun, so inside of
// mpirun those of Slurm are the helper's. A process of a Slurm job that srun did not start (a batch script's) is one of
// one, whatever SLURM_NTASKS says.
Launch find_launch(const Lookup&, std::string host);
Launch find_launch();  // of this process

}  // namespace lathe::comm
