// Control: the channel beside the messages of a run, over which ranks know of each other. Rank 0 is in the middle; no
// MPI is needed, and none can block it: a thread of its own sends signs of life with the rank's position, and rank 0
// judges (control/judge.h).
//
// A rank that is killed ends the run within a second; one that is stopped, unreachable or late does so after the
// timeout. Everybody gets the same line with who, where and since when, once, by the callback; a rank that cannot leave
// by itself is ended (exit code 76). A rank that loses rank 0 ends by itself.
//
//     std::unique_ptr<comm::Group> group;  // outlives the callback
//     comm::Control control({.rank = r, .size = n, .address = "host:29500", .token = job});
//     group = comm::tcp_group(control);  // or another one, with set_position(&control.position())
//     control.set_on_failure([&](const std::string& why) { group->abort(why); });
//     for (int64_t step = 1; step <= steps; ++step) {
//       control.position().set_step(step);
//       ...
//     }
//     control.finish();
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/control/difference.h"
#include "comm/control/stragglers.h"
#include "comm/position.h"
#include "comm/socket.h"

namespace lathe::comm {

struct ControlOptions {                 // How a channel is made.
  int rank = 0;                         // of this process
  int size = 1;                         // ranks of the run
  std::string address = "127.0.0.1:0";  // HOST:PORT where rank 0 listens; unused on rank 0 if it is given a Listener
  std::string token = "";               // of the job, the same on all ranks; connections with another one are refused
  double start_timeout = 60;            // seconds until all ranks have to be here
  double timeout = 120;                 // seconds without a sign of life, or in a collective that others do not enter
  double heartbeat = 0.1;               // seconds between signs of life; more with more than 128 ranks
  double grace = 5;                     // seconds until a rank that does not leave after a failure is ended
  std::string stack_folder = ".";       // see Control::set_stack_folder
};

enum class Cause {  // Of a rank's own failure.
  error,            // it is the first one: a file, a device, a bug
  messages,         // messages fail: most likely because another rank does; rank 0 waits a moment for a better reason
};

class Control {  // See the top of the file.
 public:
  // Returns when all ranks are here. CommError when they are not within start_timeout, with the ranks that are missing.
  explicit Control(const ControlOptions&);
  Control(const ControlOptions&, Listener);  // for rank 0, which has told the others Listener::address()
  ~Control();                                // without finish() or fail() the other ranks see this one as gone
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  int rank() const;                         // of this process
  int size() const;                         // of the run
  const std::string& host(int rank) const;  // its name, for people
  std::string local_host() const;           // the number by which other ranks reach this machine: "10.0.0.3"
  const std::string& token() const;         // of the job
  Position& position();                     // of this rank; whoever runs steps and collectives sets it

  // Failures. The callback is called once, by the thread of the channel, or at once if the run has failed already; it
  // may not destroy the channel. A new one replaces the old one, which is not running any more when this returns.
  void set_on_failure(std::function<void(const std::string& why)>);
  std::optional<std::string> failure() const;  // the line that everybody has; nothing: all is well
  // This rank fails: all ranks hear who and why. Returns the line that everybody has, which is another one if another
  // rank failed first; by then the callback has run.
  std::string fail(const std::string& why, Cause = Cause::error);
  // All ranks fail for a reason that each of them has by itself, such as the difference that agree() found: called by
  // every rank, it names none. Rank 0 tells the others, who wait for that for a moment: no rank that has not come so
  // far is left alone or takes one that leaves for the reason.
  void fail_alike(const std::string& why);
  // After a failure: who tells the user, so that one rank does. The one that failed by itself, else the first one, or
  // the second one where the first is to blame.
  int speaker() const;
  // An orderly end: returns when every rank has called it, however long that takes. CommError if the run fails instead.
  void finish();

  // Messages that every rank takes part in, in the same order; for before and between steps. CommError when a rank does
  // not come within so many seconds (0: the timeout), and when the run fails. At most 64 MiB each.
  std::vector<std::string> gather(const std::string&, double seconds = 0);  // on rank 0, by rank; on others empty
  std::string broadcast(const std::string&, double seconds = 0);            // what rank 0 gave
  // Lists that have to be the same on all ranks: one line about the first difference, the same on all; empty: none.
  std::string agree(std::span<const Item>, double seconds = 0);

  // Where the stacks of this rank's threads go when it is late, does not leave after a failure, or was stopped and goes
  // on: the file rank-R.stack of this folder, which a line on the standard error names. Where the file cannot be made,
  // the standard error has them.
  void set_stack_folder(const std::string& folder);

  // On rank 0: how long the others waited for each rank. Empty elsewhere.
  std::vector<Straggler> stragglers() const;
  std::string straggler_table() const;  // the same for people

  void close_for_test();  // the connections break, as if a network did it

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace lathe::comm
