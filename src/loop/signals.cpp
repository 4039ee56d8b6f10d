#include "loop/signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>

#include "base/error.h"

namespace lathe {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP};
using Saved = struct sigaction[std::size(kSignals)];

void install(void (*handler)(int), Saved& saved) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &saved[i]);
    // Under nohup a closed terminal means nothing.
    if (kSignals[i] != SIGHUP || saved[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

void put_back(const Saved& saved) {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &saved[i], nullptr);
}

// Handlers can reach only globals.
StopFlag g_received;
std::atomic<const char*> g_meaning{""};
// The path, whose text is complete when it is not null; null: no file.
std::atomic<const char*> g_path{nullptr};
std::atomic<const std::string*> g_text{nullptr};
static_assert(std::atomic<const char*>::is_always_lock_free);
std::mutex g_mutex;  // of the next two
int g_users = 0;     // StopSignals that are alive
Saved g_saved_by_stop, g_saved_by_exit;

void note_signal(int number) {
  if (number == SIGINT && g_received.signal() == SIGINT) _exit(130);
  g_received.set(number);
}

// What a handler may call is little: no formatting, no stdio.
void end_process(int number) {
  char text[256] = "lathe: signal ";
  size_t at = std::strlen(text);
  if (number >= 10) text[at++] = static_cast<char>('0' + number / 10);
  text[at++] = static_cast<char>('0' + number % 10);
  text[at++] = ':';
  text[at++] = ' ';
  for (const char* c = g_meaning.load(); *c && at + 1 < sizeof(text); ++c) text[at++] = *c;
  text[at++] = '\n';
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, text, at);
  if (const char* path = g_path.load()) {
    const std::string& file = *g_text.load();
    if (const int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); to >= 0)
      written = write(to, file.data(), file.size());
  }
  _exit(static_cast<int>(Exit::preempted));
}

}  // namespace

StopSignals::StopSignals() {
  const std::lock_guard lock(g_mutex);
  if (g_users++ > 0) return;
  g_received.clear();
  install(note_signal, g_saved_by_stop);
}

StopSignals::~StopSignals() {
  const std::lock_guard lock(g_mutex);
  if (--g_users == 0) put_back(g_saved_by_stop);
}

const StopFlag& StopSignals::flag() const { return g_received; }

ExitSignals::ExitSignals(const char* meaning) {
  set_meaning(meaning);
  install(end_process, g_saved_by_exit);
}

ExitSignals::~ExitSignals() {
  put_back(g_saved_by_exit);
  drop_file();
}

void ExitSignals::set_file(std::string path, std::string text) {
  LATHE_CHECK(path_.empty(), "{} is set already", path_);
  path_ = std::move(path);
  text_ = std::move(text);
  g_text.store(&text_);
  g_path.store(path_.c_str());
}

void ExitSignals::drop_file() { g_path.store(nullptr); }

void ExitSignals::set_meaning(const char* meaning) { g_meaning.store(meaning); }

}  // namespace lathe
