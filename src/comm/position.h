// Position: where a rank is, for those who want to know why nothing moves. The threads that run steps and collectives
// write it, the thread of the control channel reads it (control.h); nobody waits for anybody.
//
// A collective costs two readings of the clock and a few stores; nothing is allocated after add_label().
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace lathe::comm {

struct Place {             // A position at some moment.
  int64_t step = -1;       // which runs; -1: none yet
  int64_t number = 0;      // collectives that were entered since the start
  int64_t in_step = 0;     // those since the step began
  int64_t per_step = 0;    // those that a step has; 0: unknown
  bool inside = false;     // of the last of them
  double seconds = 0;      // since it entered, or left, the last of them
  std::string_view label;  // of the last of them; valid as long as what it was read from
};
std::string to_string(const Place&);  // "at step 17 in collective 5 of 9 (all_reduce of fc1)"

class Position {  // See the top of the file.
 public:
  // Steps whose waiting time is kept: of each power of two the last step that it divides, so that ranks which are read
  // at different times have one in common.
  static constexpr int kMarks = 16;
  struct Mark {             // A step that began.
    int64_t step = -1;      // -1: none yet
    int64_t waited_ns = 0;  // spent in collectives before it
  };

  Position();
  Position(const Position&) = delete;
  Position& operator=(const Position&) = delete;

  // A name for enter(), when kernels are bound: "all_reduce of fc1". The same name has the same label.
  int32_t add_label(std::string_view name);
  void set_per_step(int64_t collectives) { per_step_.store(collectives, std::memory_order_relaxed); }  // of a step

  void set_step(int64_t step);  // it begins; by one thread at a time, outside of collectives
  void enter(int32_t label);    // a collective begins; by one thread at a time
  void leave();                 // it is over

  Place read() const;                      // by any thread
  std::array<Mark, kMarks> marks() const;  // by any thread; see Mark
  double seconds_inside() const {          // of all collectives that are over; by any thread
    return 1e-9 * static_cast<double>(waited_ns_.load(std::memory_order_relaxed));
  }

  static constexpr int32_t kNoLabel = 0;  // what has no name

 private:
  static constexpr int kLabelBits = 20;

  struct AtomicMark {
    std::atomic<int64_t> step{-1}, waited_ns{0};
  };

  std::atomic<uint64_t> word_{0};  // number, label, inside: one store changes them together
  std::atomic<int64_t> since_ns_{0}, waited_ns_{0};
  std::atomic<int64_t> step_{-1}, before_step_{0}, per_step_{0};
  std::array<AtomicMark, kMarks> marks_;
  mutable std::mutex mutex_;        // of the labels
  std::deque<std::string> labels_;  // never moves what it holds
  std::map<std::string_view, int32_t> ids_;
};

// Inside a collective as long as it lives. Null: nobody wants to know.
class Inside {
 public:
  Inside(Position* position, int32_t label) : position_(position) { begin(position, label); }  // from now on
  ~Inside() { end(position_); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  static void begin(Position* p, int32_t label) {
    if (p) p->enter(label);
  }
  static void end(Position* p) {
    if (p) p->leave();
  }

  Position* const position_;
};

}  // namespace lathe::comm
