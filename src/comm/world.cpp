#include "comm/world.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

#include "base/error.h"
#include "comm/mpi.h"
#include "comm/tcp/tcp.h"
#include "comm/text.h"

namespace lathe::comm {
namespace {

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

// MPI waits for ranks that never start as long as it takes, and can be told nothing: after so many seconds this process
// ends by itself.
class StartLimit {
 public:
  StartLimit(const Launch& launch, double seconds)
      : thread_([this, launch, seconds] {
          std::unique_lock lock(mutex_);
          if (changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return started_; })) return;
          fmt::print(stderr,
                     "lathe: error: rank {} of {} ({}): MPI has not started after {:.0f} s; some ranks are missing, or "
                     "cannot be reached; comm.timeout says how long to wait\n",
                     launch.rank, launch.size, launch.host, seconds);
          std::_Exit(static_cast<int>(Exit::peer_failure));
        }) {}
  ~StartLimit() {
    {
      const std::lock_guard lock(mutex_);
      started_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace

World::World(const Launch& launch, double timeout) : launch_(launch) {
  ControlOptions o;
  o.rank = launch.rank;
  o.size = launch.size;
  o.timeout = timeout;
  o.start_timeout = std::max(o.start_timeout, timeout);
  if (!launch.address.empty()) {
    o.address = join_address(launch.address, launch.port);
    o.token = fmt::format("{}:{} {}", launch.address, launch.port, launch.size);
    control_ = std::make_unique<Control>(o);
    TcpOptions tcp;
    tcp.timeout = timeout;
    tcp.start_timeout = o.start_timeout;
    group_ = tcp_group(*control_, tcp);
  } else {
    const StartLimit limit(launch, o.start_timeout);
    MpiOptions mpi = mpi_options();
    mpi.timeout = timeout;
    mpi.notify = false;  // the control channel does
    group_ = mpi_group(mpi);
    // MPI passes on where the first rank listens.
    std::unique_ptr<Listener> listener;
    std::string where;
    if (launch.rank == 0) {
      const bool alone = launch.local_size == launch.size;
      listener = std::make_unique<Listener>(alone ? "127.0.0.1:0" : "0.0.0.0:0");
      where = listener->address() + " " + random_token();
    }
    where = broadcast_text(*group_, where);
    const size_t space = where.find(' ');
    LATHE_CHECK(space != std::string::npos, "the first rank listens at \"{}\"", where);
    o.address = where.substr(0, space);
    o.token = where.substr(space + 1);
    control_ = listener ? std::make_unique<Control>(o, std::move(*listener)) : std::make_unique<Control>(o);
    group_->set_position(&control_->position());
  }
  control_->set_on_failure([this](const std::string& why) { group_->abort(why); });
}

World::~World() {
  control_->set_on_failure([](const std::string&) {});
  group_.reset();
}

std::unique_ptr<World> find_world(double timeout) {
  try {
    const Launch launch = find_launch();
    return launch.size > 1 ? std::make_unique<World>(launch, timeout) : nullptr;
  } catch (const UserError& e) {
    throw UserError(e.what(), Exit::usage);  // of the environment, not of data
  }
}

}  // namespace lathe::comm
