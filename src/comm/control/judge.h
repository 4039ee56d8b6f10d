// The judge: from what is known of all ranks, whether the run fails, and who is to blame. A pure function; rank 0 asks
// it with every heartbeat.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "comm/position.h"

namespace lathe::comm {

enum class Fault : uint8_t {  // What is wrong with a rank.
  error,                      // it says so itself
  gone,                       // its connection is closed: it was killed, or crashed
  silent,                     // its connection is open and nothing comes: stopped, or its host or link is down
  late,                       // the others wait for it in a collective
  stuck,                      // all are in the same collective, and it does not end
};

struct Verdict {     // Why a run fails.
  Fault fault{};     // what is wrong
  int rank = -1;     // who is to blame; the lowest of several; -1: nobody
  std::string text;  // one line
};

struct RankView {           // What is known of a rank.
  int rank = 0;             // which
  std::string_view host{};  // for people
  double silence = 0;       // seconds since the last sign of life
  Place place{};            // at the last sign of life
  bool is_done = false;     // it has called finish()
};

std::string name_of(const RankView&);    // "rank 2 (host h3)"
std::string last_seen(const RankView&);  // "last seen at step 17 ..., 0.04 s ago"

// A rank whose connection was closed.
Verdict gone(const RankView&);
// A rank of which nothing was heard for longer than the timeout.
Verdict silent(const RankView&);
// Of ranks whose connections are open, in the order of ranks. A rank that is done is never silent, but may be late.
std::optional<Verdict> judge(std::span<const RankView>, double timeout);

}  // namespace lathe::comm
