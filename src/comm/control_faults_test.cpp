// Real processes over loopback, and every way in which one of them can fail: all others end in time, with the exit code
// of a peer's failure and a line that names the right rank; nobody is left behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "comm/collectives.h"
#include "comm/tcp/tcp.h"

namespace lathe::comm {
namespace {

constexpr double kTimeout = 1.5, kGrace = 0.5;
constexpr int kFaultyStep = 20;

enum class How { kill, stop, error, sleep, close, busy };
constexpr std::pair<How, const char*> kHows[] = {{How::kill, "kill"},   {How::stop, "stop"},   {How::error, "error"},
                                                 {How::sleep, "sleep"}, {How::close, "close"}, {How::busy, "busy"}};

#if defined(__SANITIZE_THREAD__)
constexpr bool kSignalsWaitForCalls = true;
#else
constexpr bool kSignalsWaitForCalls = false;
#endif

void fail_now(How how, Control& control) {
  switch (how) {
    case How::kill: raise(SIGKILL); break;
    case How::stop: raise(SIGSTOP); break;
    case How::error: throw DeviceError("the device is lost");
    case How::sleep: std::this_thread::sleep_for(std::chrono::seconds(60)); break;
    case How::close: control.close_for_test(); break;
    case How::busy:
      for (volatile bool always = true; always;) {
      }
  }
}

// A process of a run: small steps with two collectives, until it fails. Its exit code.
int run_rank(int rank, int size, int faulty, How how, std::optional<Listener> listener, const std::string& address,
             const std::string& folder) {
  ControlOptions o{.rank = rank, .size = size, .address = address, .token = "t", .start_timeout = 20};
  o.timeout = kTimeout;
  o.grace = kGrace;
  std::unique_ptr<Group> group;  // outlives the callback
  std::optional<Control> control;
  if (rank == 0)
    control.emplace(o, std::move(*listener));
  else
    control.emplace(o);
  try {
    control->set_stack_folder(folder);
    group = tcp_group(*control, {.timeout = kTimeout + 1});
    control->set_on_failure([&](const std::string& why) { group->abort(why); });
    Collectives all(*group, 4096);
    const int32_t first = all.label("all_reduce of fc1's gradient"), second = all.label("all_reduce of fc2's gradient");
    control->position().set_per_step(2);
    std::vector<float> data(5000, 1.0f);
    for (int step = 1; step < 100000; ++step) {
      control->position().set_step(step);
      all.at(first).all_reduce(std::as_writable_bytes(std::span(data)), DType::f32, Reduce::max);
      if (rank == faulty && step == kFaultyStep) fail_now(how, *control);
      all.at(second).all_reduce(std::as_writable_bytes(std::span(data)), DType::f32, Reduce::max);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    control->finish();
    return 0;
  } catch (const CommError& e) {
    fprintf(stderr, "%s\n", control->fail(e.what(), Cause::messages).c_str());
    return static_cast<int>(e.exit_code());
  } catch (const Error& e) {
    fprintf(stderr, "own: %s\n", control->fail(e.what()).c_str());
    return static_cast<int>(e.exit_code());
  }
}

struct Process {
  pid_t pid = -1;
  std::string file;  // its standard error
  int code = -1;     // exit code, or -signal; -1: it runs
  double seconds = 0;

  bool poll(double since) {
    int status = 0;
    if (code != -1 || waitpid(pid, &status, WNOHANG) != pid) return code != -1;
    code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    seconds = monotonic_seconds() - since;
    return true;
  }
  std::string text() const { return read(file); }
  static std::string read(const std::string& path) {
    std::ifstream in(path);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
};

std::vector<Process> start_ranks(int size, int faulty, How how, const std::string& folder) {
  Listener listener("127.0.0.1:0");
  const std::string address = listener.address();
  std::vector<Process> processes(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) {
    Process& p = processes[static_cast<size_t>(r)];
    p.file = fmt::format("{}/{}", folder, r);
    p.pid = fork();
    if (p.pid != 0) continue;
    const int err = open(p.file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(err, STDERR_FILENO);
    alarm(60);
    int code = 99;
    try {
      std::optional<Listener> own;
      if (r == 0)
        own.emplace(std::move(listener));
      else
        listener.close();
      code = run_rank(r, size, faulty, how, std::move(own), address, folder);
    } catch (const std::exception& e) {
      fprintf(stderr, "%s\n", e.what());
    }
    fflush(stderr);
    _exit(code);
  }
  return processes;
}

std::string log_of(const std::vector<Process>& processes) {
  std::string text;
  for (size_t r = 0; r < processes.size(); ++r)
    text += fmt::format("rank {}: exit {} after {:.2f} s: {}\n", r, processes[r].code, processes[r].seconds,
                        processes[r].text().substr(0, 600));
  return text;
}

class FaultTest : public testing::TestWithParam<std::pair<How, const char*>> {};

void check(const std::vector<Process>& processes, How how, int faulty, double longest, const std::string& folder) {
  const std::string log = log_of(processes);
  for (int r = 0; r < static_cast<int>(processes.size()); ++r) {
    const Process& p = processes[static_cast<size_t>(r)];
    EXPECT_EQ(p.code, r != faulty ? 76 : how == How::kill ? -SIGKILL : how == How::error ? 71 : 76) << r << "\n" << log;
    EXPECT_LT(p.seconds, longest) << r << "\n" << log;
    const std::string text = p.text();
    if (r == faulty && how == How::kill) continue;
    if (r == faulty && how == How::close) continue;  // for this one rank 0 is gone, or all others are
    EXPECT_NE(text.find(fmt::format("rank {} (host ", faulty)), std::string::npos) << r << "\n" << log;
    if (r == faulty) continue;
    const char* words = how == How::kill || how == How::close ? "killed or gone; last seen "
                        : how == How::stop                    ? "no sign of life"
                        : how == How::error                   ? "the device is lost (at step 20 "
                                                              : ": late by ";
    EXPECT_NE(text.find(words), std::string::npos) << r << "\n" << log;
    if (how == How::sleep || how == How::busy) {
      EXPECT_NE(text.find("at step 20 in collective 2 of 2 (all_reduce of fc2's gradient)"), std::string::npos) << log;
    }
    if (how == How::kill || how == How::error) {
      EXPECT_LT(p.seconds, 2.5) << log;
    }
  }
  // Where it is stuck, or was when it was stopped.
  if (how == How::sleep || how == How::busy || how == How::stop) {
    const std::string path = fmt::format("{}/rank-{}.stack", folder, faulty), stacks = Process::read(path);
    EXPECT_NE(processes[static_cast<size_t>(faulty)].text().find(path), std::string::npos) << log;
    // A thread that calls nothing answers no signal under TSan, which delivers them in calls.
    const char* const answer = kSignalsWaitForCalls && how == How::busy ? "does not answer" : "libc";
    for (const std::string& part : {fmt::format("rank {} (host ", faulty), std::string("thread "), std::string(answer)})
      EXPECT_NE(stacks.find(part), std::string::npos) << part << "\n" << stacks;
  }
}

// The first, a middle and the last rank, in three runs side by side.
TEST_P(FaultTest, EndsAllRanks) {
  const How how = GetParam().first;
  constexpr int kRanks = 4;
  struct Run {
    int faulty;
    std::string folder;
    std::vector<Process> processes;
  };
  std::vector<Run> runs;
  for (const int faulty : {0, 2, 3}) {
    std::string folder = (std::filesystem::temp_directory_path() / "lathe-comm-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    runs.push_back({faulty, folder, start_ranks(kRanks, faulty, how, folder)});
  }
  const double since = monotonic_seconds();
  // Steps until the fault take a fraction of a second, the start too.
  const double longest = 1.5 + kTimeout + 2;
  const auto wait_for_all = [&](double seconds, bool stopped_too) {
    const double start = monotonic_seconds();
    bool is_over = false;
    while (!is_over && monotonic_seconds() - start < seconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      is_over = true;
      for (Run& run : runs)
        for (int r = 0; r < kRanks; ++r)
          if (stopped_too || how != How::stop || r != run.faulty)
            is_over &= run.processes[static_cast<size_t>(r)].poll(stopped_too ? start : since);
    }
  };
  wait_for_all(longest + 5, false);
  if (how == How::stop) {  // it ends when it goes on
    for (Run& run : runs) {
      EXPECT_EQ(run.processes[static_cast<size_t>(run.faulty)].code, -1);
      kill(run.processes[static_cast<size_t>(run.faulty)].pid, SIGCONT);
    }
    wait_for_all(5, true);
  }
  for (Run& run : runs) {
    for (Process& p : run.processes)
      if (p.code == -1) {  // nobody may be left behind
        kill(p.pid, SIGKILL);
        waitpid(p.pid, nullptr, 0);
        ADD_FAILURE() << "a process had to be killed";
      }
    check(run.processes, how, run.faulty, longest, run.folder);
    std::filesystem::remove_all(run.folder);
  }
}

// A job that is suspended for longer than the timeout and goes on: no failure.
TEST(Suspended, AllRanksGoOn) {
  std::string folder = (std::filesystem::temp_directory_path() / "lathe-comm-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::vector<Process> processes = start_ranks(3, -1, How::kill, folder);
  const double since = monotonic_seconds();
  const auto to_all = [&](int number) {
    for (const Process& p : processes) kill(p.pid, number);
  };
  const auto sleep = [](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); };
  sleep(0.5);
  to_all(SIGSTOP);
  sleep(kTimeout + 2);
  to_all(SIGCONT);
  sleep(1);
  for (Process& p : processes) EXPECT_FALSE(p.poll(since)) << log_of(processes);
  // And failures are found as before.
  kill(processes[1].pid, SIGKILL);
  sleep(0.3);
  for (Process& p : processes) EXPECT_TRUE(p.poll(since)) << log_of(processes);
  EXPECT_EQ(processes[0].code, 76);
  EXPECT_EQ(processes[2].code, 76);
  for (Process& p : processes)
    if (p.code == -1) {
      kill(p.pid, SIGKILL);
      waitpid(p.pid, nullptr, 0);
    }
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Control, FaultTest, testing::ValuesIn(kHows),
                         [](const auto& info) { return std::string(info.param.second); });

}  // namespace
}  // namespace lathe::comm
