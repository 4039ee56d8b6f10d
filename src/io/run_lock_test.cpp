#include "io/run_lock.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>

#include "io/test_util.h"

namespace lathe::io {
namespace {

using namespace std::chrono_literals;

RunLockOptions quick(std::string job) { return {.job_id = std::move(job), .heartbeat = 20ms, .patience = 200ms}; }

// F29
TEST(RunLock, SecondRunIsRefusedAndToldWhoHoldsIt) {
  TempDir dir;
  Exit exit = Exit::ok;
  {
    const RunLock first(dir.path(), quick("job7"));
    EXPECT_EQ(first.taken_over_from(), "");
    const std::string text = error_of([&] { RunLock(dir.path(), quick("job8")); }, &exit);
    EXPECT_EQ(exit, Exit::cannot_create);
    EXPECT_CONTAINS(text, dir.path());
    EXPECT_CONTAINS(text, fmt::format(":{}:job7", ::getpid()));
  }
  const RunLock again(dir.path(), quick("job8"));
  EXPECT_EQ(again.taken_over_from(), "");
  EXPECT_CONTAINS(error_of([&] { RunLock(dir / "none"); }), "No such file");
}

TEST(RunLock, KilledHolderFreesItAtOnce) {
  TempDir dir;
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(dir.path(), {.job_id = "dead"});
    put_file(dir / "ready", "");
    for (;;) ::pause();
  }
  while (!std::filesystem::exists(dir / "ready")) std::this_thread::sleep_for(1ms);
  EXPECT_CONTAINS(error_of([&] { RunLock(dir.path(), {}); }), fmt::format(":{}:dead", child));
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  const auto begin = std::chrono::steady_clock::now();
  const RunLock lock(dir.path(), {});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);  // no waiting for the patience of 15 s
  EXPECT_CONTAINS(lock.taken_over_from(), fmt::format(":{}:dead", child));
}

TEST(RunLock, HolderOnAnotherHostIsJudgedByItsHeartbeat) {
  TempDir dir;
  put_file(dir / ".lock", "elsewhere:12:job1\n");
  {
    std::atomic<bool> stop = false;
    std::thread holder([&] {
      while (!stop) {
        ::utimensat(AT_FDCWD, (dir / ".lock").c_str(), nullptr, 0);
        std::this_thread::sleep_for(20ms);
      }
    });
    EXPECT_CONTAINS(error_of([&] { RunLock(dir.path(), quick("job2")); }), "elsewhere:12:job1");
    stop = true;
    holder.join();
  }
  const RunLock lock(dir.path(), quick("job2"));
  EXPECT_EQ(lock.taken_over_from(), "elsewhere:12:job1");
}

TEST(RunLock, WorksWithoutFlock) {
  TempDir dir;
  RunLockOptions options = quick("a");
  options.use_flock = false;
  {
    const RunLock first(dir.path(), options);
    EXPECT_CONTAINS(error_of([&] { RunLock(dir.path(), options); }), ":a");
  }
  const RunLock second(dir.path(), options);
}

TEST(RunLock, LockFileOfWrongKindIsRefused) {
  TempDir dir;
  ASSERT_EQ(::symlink("/etc/hostname", (dir / ".lock").c_str()), 0);
  EXPECT_CONTAINS(error_of([&] { RunLock(dir.path(), quick("a")); }), "cannot open");
}

}  // namespace
}  // namespace lathe::io
