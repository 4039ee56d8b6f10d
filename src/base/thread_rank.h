// Which rank of a process a thread works for, where ranks are threads: for the names of its rows in a Trace. Threads
// that work for others take it over from the one that starts them.
#pragma once

namespace lathe {

inline int& thread_rank() {
  thread_local int rank = -1;  // -1: the process has one rank
  return rank;
}

}  // namespace lathe
