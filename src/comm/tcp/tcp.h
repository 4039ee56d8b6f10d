// A group over TCP: ranks that are processes, on one machine or several, without MPI. One connection between every two
// ranks; messages are written from the sender's bytes and read into the receiver's, and get on inside of calls of the
// group alone.
//
// A message that stands in front of one of another tag that somebody waits for is moved to memory, which is the one
// case that allocates.
#pragma once

#include <memory>
#include <vector>

#include "comm/control.h"
#include "comm/group.h"

namespace lathe::comm {

struct TcpOptions {
  double timeout = 120;       // seconds that a rank waits without a byte of a message
  double start_timeout = 60;  // seconds until all ranks are connected
  bool checksums = false;     // messages are compared with what was sent; on all ranks or on none
};

// A group of the ranks of a control channel, which exchanges their addresses; every rank calls it. Its position is that
// of the channel. The channel outlives it. At most 512 ranks.
std::unique_ptr<Group> tcp_group(Control&, const TcpOptions& = {});

// Groups of ranks that are threads of one process, over the loopback device: for tests.
std::vector<std::unique_ptr<Group>> tcp_groups(int ranks, const TcpOptions& = {});

}  // namespace lathe::comm
