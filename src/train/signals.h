// Signals that ask a run to stop: SIGINT, SIGTERM, SIGUSR1, SIGUSR2, and SIGHUP unless it was ignored (nohup). The first
// sets a flag that the loop reads at step boundaries; a second SIGINT ends the process at once.
#pragma once

namespace lathe {

class StopSignals {
 public:
  StopSignals();   // installs the handlers
  ~StopSignals();  // puts back what was there
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int received() const;  // the signal's number, or 0
};

}  // namespace lathe
