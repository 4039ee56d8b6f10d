// Members: how the connections of a run are made. Who connects says hello with the token of the job and its rank;
// strangers, other jobs and ranks that are here already are refused, and disturb nobody.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/frame.h"
#include "comm/socket.h"

namespace lathe::comm {

enum class Purpose : uint8_t { control = 1, messages };  // What a connection is for.

struct Membership {     // Of the process that connects or listens.
  Purpose purpose{};    // of the connection
  int rank = 0;         // of this process
  int size = 1;         // ranks of the run
  std::string token;    // of the job, the same on all ranks; at most 256 bytes
  double timeout = 60;  // seconds until all have to be here
};

struct Member {        // The other end of a connection.
  int rank = -1;       // whose
  std::string host;    // for people
  int64_t pid = 0;     // on that host
  Socket socket;       // to it
  FrameReader reader;  // of what it sends
};

// All ranks from `first` on, in their order. CommError that names those who are missing when the time is over, or one
// that goes away again; those who are here are told.
std::vector<Member> accept_members(Listener&, const Membership&, int first);

// Says hello to a rank that listens there, again and again until the time is over. It has not answered yet.
Member greet(const std::string& address, int rank, const Membership&);
// Its answer: the payload of its welcome. CommError where it refuses for good; nothing where it went away or is another
// job, `problem` says why.
bool await_welcome(Member&, double seconds, std::string& payload, std::string& problem);

// greet() and await_welcome() until it worked or the time is over (CommError).
Member join(const std::string& address, int rank, const Membership&, std::string& payload);

}  // namespace lathe::comm
