// Star: the connections of the control channel, rank 0 in the middle, and the thread that serves them. What frames mean
// is the handler's business (control.cpp).
#pragma once

#include <atomic>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/control/member.h"

namespace lathe::comm {

class Star {
 public:
  // Called by the thread of the star alone, one at a time.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void on_frame(int rank, const Frame&) = 0;
    virtual void on_closed(int rank, bool is_bad) = 0;  // nothing comes from it any more; is_bad: it sent nonsense
    virtual void on_tick() = 0;  // after everything that has arrived was given, at least every so many seconds
  };

  // Of rank 0: all others; of the others: rank 0.
  Star(std::vector<Member> members, double tick);
  ~Star() { stop(0); }

  void start(Handler&);  // the handler outlives stop()
  // Ends the thread when all that was sent is on its way, and, for at most `linger` seconds, when all others have
  // closed their ends: what is closed before they read may be lost. Not by the handler.
  void stop(double linger);

  // By any thread; nothing waits. What cannot be sent at once is kept, except a frame that may be `skipped`.
  void send(int rank, FrameType, std::string_view payload, bool skipped = false);
  void send_all(FrameType, std::string_view payload, bool skipped = false);
  void break_links();  // for tests: as if the network did it

 private:
  struct Link {
    Member member;
    FrameWriter writer;
    bool is_open = true;
  };

  void run();
  void serve(Link&);
  bool is_finished();
  void send_on(Link&, FrameType, std::string_view payload, bool skipped);

  const double tick_;
  std::vector<Link> links_;  // in the order of ranks
  std::mutex mutex_;         // of writers and of is_open
  Waker waker_;
  Handler* handler_ = nullptr;
  std::atomic<bool> ending_{false};
  std::atomic<double> linger_until_{0};
  std::thread thread_;
};

}  // namespace lathe::comm
