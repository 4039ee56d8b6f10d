// A batch script for Slurm that trains a recipe on several nodes: memory from the plan, a signal before the time is
// over, and the job queued again with --resume when that signal stopped it.
#pragma once

#include <string>

#include "compile/compile.h"

namespace lathe {

struct JobOptions {               // What the script asks for.
  std::string recipe;             // file or name, as `lathe train` takes it
  Sets sets;                      // --set of the recipe
  std::string out;                // run directory, on a file system that all nodes see
  std::string program = "lathe";  // the command
  int nodes = 1;                  // machines
  int ranks_per_node = 1;         // processes on each
  int threads = 1;                // processor cores of each rank
  int64_t minutes = 60;           // wall time; the job is queued again until the recipe is done
  int64_t grace = 120;            // seconds before its end at which ranks are told to write a checkpoint
  std::string mpi = "pmix";       // what srun starts ranks with
  std::string partition;          // "": the cluster's default
  std::string account;            // "": the user's default
};

// `first`: compiled for the first of all ranks, whose parts are the largest. UserError for values that would break the
// script.
std::string job_script(const Compiled& first, const JobOptions&);

// Bytes of host memory that one rank needs: what it allocates there, what is outside of that, a tenth for what the
// estimate does not see, and with several ranks 256 MiB for the library of MPI.
int64_t host_bytes_of_rank(const Compiled&);

}  // namespace lathe
