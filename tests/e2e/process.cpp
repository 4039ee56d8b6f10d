#include "process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

namespace lathe::test {
namespace {

namespace fs = std::filesystem;

pid_t start(const std::vector<std::string>& args, const std::vector<std::string>& env, const std::string& out,
            const std::string& err) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  for (const std::string& e : env) putenv(const_cast<char*>(e.c_str()));
  const int o = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600),
            e = open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(o, 1);
  dup2(e, 2);
  std::vector<char*> argv{const_cast<char*>(LATHE_BINARY)};
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  execv(LATHE_BINARY, argv.data());
  _exit(127);
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

Outcome run_lathe(const std::vector<std::string>& args, const std::vector<std::string>& env) {
  const TempDir dir;
  const std::string out = dir.path("out"), err = dir.path("err");
  Outcome r;
  r.code = wait_for(start(args, env, out, err));
  r.out = read_file(out);
  r.err = read_file(err);
  return r;
}

Running::Running(const std::vector<std::string>& args, const std::string& err, const std::vector<std::string>& env,
                 const std::string& out)
    : pid_(start(args, env, out, err)) {}
Running::~Running() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    wait_for(pid_);
  }
}
void Running::signal(int number) { kill(pid_, number); }
int Running::wait() {
  const int code = wait_for(pid_);
  pid_ = -1;
  return code;
}

TempDir::TempDir() {
  std::string name = (fs::temp_directory_path() / "lathe-test-XXXXXX").string();
  dir_ = mkdtemp(name.data());
}
TempDir::~TempDir() {
  std::error_code ec;
  fs::remove_all(dir_, ec);
}
std::string TempDir::path(const std::string& name) const { return (dir_ / name).string(); }

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string newest_checkpoint(const std::string& run) {
  std::string best;
  std::error_code ec;
  for (const auto& e : fs::directory_iterator(fs::path(run) / "checkpoints", ec))
    if (e.path().filename().string().starts_with("step-")) best = std::max(best, e.path().string());
  return best;
}

namespace {

template <class Condition>
bool wait_until(double seconds, Condition&& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace

bool wait_for_file(const std::string& path, double seconds) {
  return wait_until(seconds, [&] { return fs::exists(path); });
}

bool wait_for_text(const std::string& path, const std::string& text, double seconds) {
  return wait_until(seconds, [&] { return read_file(path).find(text) != std::string::npos; });
}

bool all_tests() { return std::getenv("LATHE_ALL") != nullptr; }

}  // namespace lathe::test
