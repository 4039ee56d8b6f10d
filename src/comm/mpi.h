// Ranks that are processes of an MPI job (mpirun, srun), through the MPI library of the machine (mpi_library.h).
//
// Messages are MPI_Isend and MPI_Irecv on a communicator of the group's own; a wait polls, so that it ends when abort()
// is called. MPI moves messages only inside of its calls: whoever wants them to move while it computes gives the group
// a thread that waits.
#pragma once

#include <memory>
#include <string>

#include "comm/group.h"
#include "comm/mpi_library.h"

namespace lathe::comm {

struct MpiOptions {      // How ranks of MPI are made.
  double timeout = 120;  // seconds that a rank waits for a message, and for the others when it ends
  bool notify = true;    // abort() tells the other ranks, through MPI; false: somebody else calls abort() on each
  MpiSearch search;      // which library
};

MpiOptions mpi_options();  // by the environment: LATHE_MPI and the launcher

// The group of all processes; all of them call it, in the same order. Messages of two groups never meet. abort() may be
// called by any thread, all else by one at a time.
//
// A message that is larger or smaller than its receive is named by the receiver, which aborts. After a failure the
// process has to end: messages that are half done may touch their bytes for a moment longer.
// UserError: no library, or one that does not see the processes that the launcher started.
std::unique_ptr<Group> mpi_group(const MpiOptions& = mpi_options());

}  // namespace lathe::comm
