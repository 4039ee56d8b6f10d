#include "loop/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>

namespace lathe {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP};
std::atomic<int> g_received{0};  // a handler can reach only globals
static_assert(std::atomic<int>::is_always_lock_free);
std::mutex g_mutex;  // of the rest
int g_users = 0;     // StopSignals that are alive
struct sigaction g_saved[std::size(kSignals)];

void handle(int number) {
  if (number == SIGINT && g_received.load() == SIGINT) _exit(130);
  g_received.store(number);
}

}  // namespace

StopSignals::StopSignals() {
  const std::lock_guard lock(g_mutex);
  if (g_users++ > 0) return;
  g_received.store(0);
  struct sigaction action = {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &g_saved[i]);
    // Under nohup a closed terminal means nothing.
    if (kSignals[i] != SIGHUP || g_saved[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  const std::lock_guard lock(g_mutex);
  if (--g_users > 0) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &g_saved[i], nullptr);
}

int StopSignals::received() const { return g_received.load(); }

}  // namespace lathe
