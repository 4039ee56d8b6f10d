// Signals that ask a run to stop: SIGINT, SIGTERM, SIGUSR1, SIGUSR2, and SIGHUP unless it was ignored (nohup). The
// first sets a flag that the loop reads at step boundaries; a second SIGINT ends the process at once. Signals belong to
// the process: several runs in it share handlers and flag, so a signal stops them all. Safe to make and end in any
// thread.
#pragma once

namespace lathe {

class StopSignals {
 public:
  StopSignals();   // the first one installs the handlers
  ~StopSignals();  // the last one puts back what was there before the first
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int received() const;  // the signal's number, or 0
};

}  // namespace lathe
