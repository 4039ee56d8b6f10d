// Signals that ask a run to stop: SIGINT, SIGTERM, SIGUSR1, SIGUSR2, and SIGHUP unless it was ignored (nohup).
//
// A run handles them (StopSignals) while it has computed something that a checkpoint would keep. Before its first step
// and after its last they are the program's: no code that reads data, plans or compiles kernels has to ask for them,
// and a driver's compiler could not. The command line ends the process then (ExitSignals).
#pragma once

#include <string>

#include "base/stop_flag.h"

namespace lathe {

// The first signal sets a flag that the loop reads at step boundaries, and runs between launches (run/leaving.h); a
// second SIGINT ends the process at once. Signals belong to the process: several runs in it share handlers and flag, so
// a signal stops them all. Safe to make and end in any thread.
class StopSignals {
 public:
  StopSignals();   // the first one installs the handlers
  ~StopSignals();  // the last one puts back what was there before the first
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  const StopFlag& flag() const;                     // for who asks often
  int received() const { return flag().signal(); }  // the signal's number, or 0
};

// For main programs: a signal ends the process at once with Exit::preempted and a line on the standard error that says
// what that means for the run. StopSignals that are made later come first while they live. One per process.
class ExitSignals {
 public:
  explicit ExitSignals(const char* meaning);  // a literal, as in set_meaning()
  ~ExitSignals();                             // puts back what was there before
  ExitSignals(const ExitSignals&) = delete;
  ExitSignals& operator=(const ExitSignals&) = delete;

  void set_meaning(const char*);  // from now on
  // A file that the signal leaves behind, unless there is one of that name already. Once.
  void set_file(std::string path, std::string text);
  void drop_file();  // it leaves none from now on; allocates nothing

 private:
  std::string path_, text_;
};

}  // namespace lathe
