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

class Position;

struct Message {      // One that was started; of the group that gave it.
  int32_t at = -1;    // for the group; -1: it is done
  int32_t peer = -1;  // the other rank
};

// How collectives send long buffers: in chunks, several of which are under way in each direction. All ranks do alike.
struct Flow {
  int64_t chunk = int64_t{256} << 10;  // bytes of a message
  int ahead = 4;                       // messages, at most Group::kInFlight
};
// Through the memory of one host, and over networks that are nearly as fast: few long messages.
inline constexpr Flow kFastFlow{};
// Over slow links: messages that MPI libraries send without asking before (Open MPI up to 64 KiB over TCP, with their
// headers). Its question would wait behind all that is on its way, and so would the answer: over 1 Gbit/s long
// messages use 75 % of the link, and these 95 %.
inline constexpr Flow kSlowFlow{int64_t{60} << 10, 16};

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

  // Of this rank, set by collectives around their messages (position.h); it outlives the group. Null: nobody asks.
  Position* position() const { return position_; }
  void set_position(Position* p) { position_ = p; }  // before the first collective

  // How collectives send from now on; all ranks set the same. measure_link.h finds it.
  const Flow& flow() const { return flow_; }
  void set_flow(const Flow& f) { flow_ = f; }  // see flow()

  static constexpr int kInFlight = 16;  // see send()
  static constexpr int kTags = 8;       // tags are below

 private:
  Position* position_ = nullptr;
  Flow flow_ = kFastFlow;
};

}  // namespace lathe::comm
