// The inside of Control (comm/control.h): what is known of all ranks, and what frames mean.
//
// The thread of the star calls on_*(); callers of Control wait for `changed`. `mutex` guards everything below it;
// frames are sent with it held or not, callbacks are called without it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "comm/control.h"
#include "comm/control/judge.h"
#include "comm/control/star.h"

namespace lathe::comm {

class Control::State final : public Star::Handler {
 public:
  State(const ControlOptions&, std::optional<Listener>);
  ~State() override;

  void on_frame(int rank, const Frame&) override;
  void on_closed(int rank, bool is_bad) override;
  void on_tick() override;

  // Waits until `holds`, under the lock. CommError when the run fails; false when the time is over.
  template <class Holds>
  bool wait(std::unique_lock<std::mutex>& lock, double seconds, const Holds& holds) {
    changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return holds() || verdict; });
    if (holds()) return true;
    if (verdict) throw CommError(verdict->text);
    return false;
  }
  RankView view(int rank) const;                    // under the lock
  void conclude(const Verdict&, bool tell = true);  // the first one counts; without the lock
  void call_back();                                 // the callback, once there is one and a verdict; without the lock
  void put_heartbeat(std::string&) const;           // by any thread
  void accuse(int rank, std::string_view payload) { take_failure(rank, payload); }  // itself, on rank 0
  std::optional<std::string> await_verdict();  // its line; nothing after a few seconds without one; without the lock
  std::string receive(std::unique_lock<std::mutex>&, int rank, double seconds, uint64_t call, uint8_t kind);

  struct Known {                    // Of another rank.
    double heard = 0;               // when the last sign of life came
    Place place;                    // at that time
    std::array<char, 128> label{};  // of the place
    bool is_done = false, is_open = true;
    std::deque<std::string> inbox;  // of gather() and broadcast()
  };
  struct Suspicion {  // A failure that may follow from another one.
    Verdict verdict;
    double until = 0;
  };

  const ControlOptions options;
  const bool is_root;
  Position position;
  std::vector<std::string> hosts;  // by rank
  std::string local_host;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<Known> known;  // by rank; of those this one has a connection to
  std::optional<Verdict> verdict;
  std::optional<Suspicion> suspicion;
  std::function<void(const std::string&)> callback;
  bool is_called = false;   // the callback was
  std::thread::id calling;  // the thread that is in the callback
  double ended_at = 0;      // when this process is ended; 0: never
  bool is_done = false, all_done = false;
  Stragglers stragglers;
  uint64_t calls = 0;        // gather() and broadcast() so far
  std::string stack_folder;  // of the file with this rank's stacks

  std::optional<Star> star;  // the last to be made and the first to go

 private:
  void start(std::optional<Listener>);
  void beat();
  void check_others();
  bool take_heartbeat(int rank, std::string_view payload);
  bool take_failure(int rank, std::string_view payload);
  [[noreturn]] void end_process();
  void dump_stacks() const;  // without the lock

  std::string scratch_;          // of heartbeats
  std::vector<RankView> views_;  // for the judge
  double tick() const;           // seconds between two
  double last_tick_ = 0;         // 0: none yet
  double judged_from_ = 0;       // until then nobody is silent or late
};

}  // namespace lathe::comm
