// One run per directory: a lock file `dir/.lock` that names its holder as host:pid:job, held by flock for the life of
// the process, so a killed holder frees it at once. Where flock does not reach another host (some parallel file systems
// keep it local, or have none), a heartbeat decides: the holder touches the file every few seconds, and a newcomer who
// finds another host's name in it watches whether that continues before taking over.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "io/files/fs.h"

namespace lathe::io {

struct RunLockOptions {
  std::string job_id = "0";
  std::string host = {};  // empty: this machine's name
  std::chrono::milliseconds heartbeat{4'000};
  std::chrono::milliseconds patience{15'000};  // without a heartbeat for so long, a holder elsewhere is dead
  bool use_flock = true;                       // false: behave as on a file system without flock
};

class RunLock {
 public:
  // UserError (cannot_create) naming the holder when the directory is in use. `dir` must exist.
  explicit RunLock(const std::string& dir, RunLockOptions options = {});
  ~RunLock();  // removes the holder's name; the file stays, because removing it would let two newcomers in
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  const std::string& taken_over_from() const { return taken_over_from_; }  // the dead holder's name, or empty

 private:
  void acquire();
  bool holder_moves() const;
  void beat();

  std::string path_;
  RunLockOptions options_;
  std::string holder_, taken_over_from_;
  int fd_ = -1;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread heartbeat_;
};

// Whether a run works in the directory, without disturbing it: on this machine by the holder's process, else by a
// heartbeat that is younger than `patience`.
bool is_run_alive(const std::string& dir, const RunLockOptions& options = {});

}  // namespace lathe::io
