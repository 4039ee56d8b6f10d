#include "comm/control/stacks.h"

#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

namespace lathe::comm {
namespace {

constexpr int kDeepest = 64;
constexpr int kAnswerMs = 200;

int stack_signal() { return SIGRTMIN + 9; }

// Handlers can reach only globals.
std::atomic<int> g_stack_fd{-1};
std::atomic<int> g_stack_asked{0};  // the thread that is to answer
std::atomic<int> g_stack_answered{0};
std::mutex g_stack_mutex;

void write_frames(int fd) {
  void* frames[kDeepest];
  const int count = backtrace(frames, kDeepest);  // loaded before: it allocates nothing
  backtrace_symbols_fd(frames, count, fd);
}

// Only calls that a handler may make: backtrace() and backtrace_symbols_fd() allocate nothing once they are loaded.
void answer_stack(int) {
  const int saved = errno;
  const int self = static_cast<int>(syscall(SYS_gettid));
  if (g_stack_asked.load() == self) {
    if (const int fd = g_stack_fd.load(); fd >= 0) write_frames(fd);
    g_stack_answered.store(self);
  }
  errno = saved;
}

void write_text(int fd, const char* text) {
  [[maybe_unused]] const ssize_t written = write(fd, text, std::strlen(text));
}

void write_thread_name(int fd, int id) {
  char path[64], name[32] = "", line[128];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/comm", id);
  if (const int file = open(path, O_RDONLY | O_CLOEXEC); file >= 0) {
    const ssize_t got = read(file, name, sizeof name - 1);
    close(file);
    for (ssize_t i = 0; i < got; ++i)
      if (name[i] == '\n') name[i] = 0;
  }
  std::snprintf(line, sizeof line, "thread %d (%s):\n", id, name);
  write_text(fd, line);
}

}  // namespace

void prepare_stacks() {
  const std::lock_guard lock(g_stack_mutex);
  void* frames[4];
  backtrace(frames, 4);  // loads the unwinder
  struct sigaction action = {};
  action.sa_handler = answer_stack;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(stack_signal(), &action, nullptr);
}

void print_stacks(int fd) {
  const std::lock_guard lock(g_stack_mutex);
  DIR* const tasks = opendir("/proc/self/task");
  if (!tasks) return;
  const int self = static_cast<int>(syscall(SYS_gettid));
  while (const dirent* entry = readdir(tasks)) {
    const int id = std::atoi(entry->d_name);
    if (id <= 0 || id == self) continue;  // the caller is no riddle
    write_thread_name(fd, id);
    g_stack_fd.store(fd);
    g_stack_answered.store(0);
    g_stack_asked.store(id);
    if (syscall(SYS_tgkill, getpid(), id, stack_signal()) != 0) continue;
    for (int ms = 0; ms < kAnswerMs && g_stack_answered.load() != id; ++ms)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (g_stack_answered.load() != id) write_text(fd, "  does not answer\n");
    g_stack_asked.store(0);
    g_stack_fd.store(-1);
  }
  closedir(tasks);
}

}  // namespace lathe::comm
