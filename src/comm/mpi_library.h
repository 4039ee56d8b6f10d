// The MPI library of this process. Lathe links none: a plugin (mpi/plugin.h) of the family of the library that is there
// is opened at run time, so that one program runs with Open MPI, with MPICH and its relatives, and without MPI.
#pragma once

#include <string>
#include <vector>

#include "comm/launch.h"

struct LatheMpi;  // mpi/plugin.h

namespace lathe::comm {

struct MpiSearch {                   // How the library is found.
  std::string setting;               // LATHE_MPI: a family, or the path of a plugin; empty: what the launcher suggests
  std::vector<std::string> folders;  // with plugins; empty: plugin_folders()
  Launch launch;                     // see mpi_families()
};

// Families of libraries ("ompi", "mpich", "abi"), those first that talk to the launcher.
std::vector<std::string> mpi_families(const Launch&);
// Beside the program (in a build), and in lib/lathe beside its bin (where it is installed).
std::vector<std::string> plugin_folders();

// Opens the library and starts MPI, at the first call; later calls get the same. MPI ends when the process does by
// exit(), once all ranks have come to that: they are waited for as many seconds; else it is left as it is.
// Throws UserError with all that was tried.
const LatheMpi& mpi_library(const MpiSearch&, double timeout);
void limit_mpi_end(double seconds);  // other ranks may be gone: waits at the end no longer than that; 0: not at all
std::string mpi_version();           // "Open MPI v4.1.4, ...: lathe_mpi_ompi.so"; empty: none was opened

// MPI_Abort: ends all processes of the job, where MPI was opened. For a main() that has no other way to tell them.
void end_all_ranks(int exit_code);

// Throws CommError with the library's text, where the code is not 0.
void check_mpi(const LatheMpi&, int code, const char* what);

}  // namespace lathe::comm
