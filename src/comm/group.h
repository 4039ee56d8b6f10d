// Group: messages between the ranks of a run. Collectives are written once, over it (collectives.h): those of MPI
// libraries allocate in every call, and their sums depend on the number of ranks.
//
// Messages are numbered: one that is lost is never taken for the next one.
//
// A call does not allocate. A message that cannot be delivered ends every rank: whoever waits for it, or for anybody
// who waits for it, gets a CommError that names both ends, at the latest when the timeout of the group is over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lathe::comm {

struct Message {      // One that was started; of the group that gave it.
  int32_t at = -1;    // for the group; -1: it is done
  int32_t peer = -1;  // the other rank
};

class Group {  // See the top of the file.
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;  // from 0
  virtual int size() const = 0;  // number of ranks

  // Starts a message. Its bytes belong to it until it is done. Messages of one sender, receiver and tag arrive in the
  // order in which they were started, each in a receive of its size. At most kInFlight of each kind may be under way
  // between two ranks.
  virtual Message send(int to, int tag, std::span<const std::byte> bytes) = 0;
  virtual Message receive(int from, int tag, std::span<std::byte> bytes) = 0;  // the same
  virtual bool test(Message&) = 0;                                             // whether it is done
  virtual void wait(Message&) = 0;  // until it is done; CommError: see the top of the file

  // Ends every rank: from now on each call of any of them throws a CommError with this text.
  virtual void abort(const std::string& why) = 0;

  static constexpr int kInFlight = 16;  // see send()
  static constexpr int kTags = 8;       // tags are below
};

}  // namespace lathe::comm
