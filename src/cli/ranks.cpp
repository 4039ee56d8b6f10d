#include "cli/ranks.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <thread>

namespace lathe::cli {
namespace {

std::atomic<bool> g_has_failed{false};  // the run, and the user knows it

// UCX, below MPI libraries, aborts the process when a peer goes away while it copies from it. The control channel has
// the reason a moment later.
void await_reason(int) {
  const timespec moment{0, 10'000'000};
  for (int i = 0; i < 100 && !g_has_failed; ++i) nanosleep(&moment, nullptr);
  if (!g_has_failed) return;  // then it aborts
  for (int i = 0; i < 50; ++i) nanosleep(&moment, nullptr);
  _exit(static_cast<int>(Exit::peer_failure));
}

}  // namespace

void hold_signals() { [[maybe_unused]] static const StopSignals* const for_ever = new StopSignals; }

void say_who_failed(comm::World& world) {
  std::signal(SIGABRT, await_reason);
  world.control().set_on_failure([&world](const std::string& why) {
    if (world.speaks()) fmt::print(stderr, "lathe: error: {}\n", why);
    g_has_failed = true;
    world.group().abort(why);
  });
}

int leave_together(comm::World& world, const Error& e) {
  if (!world.speaks()) std::this_thread::sleep_for(std::chrono::seconds(1));
  return static_cast<int>(e.exit_code());
}

}  // namespace lathe::cli
