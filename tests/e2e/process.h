// Runs the lathe program as a user would: arguments in, exit code and output back.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace lathe::test {

struct Outcome {
  int code = -1;    // exit code, or -signal
  std::string out;  // standard output
  std::string err;  // standard error
};

Outcome run_lathe(const std::vector<std::string>& args, const std::vector<std::string>& env = {});

// A started program that can be signalled.
class Running {
 public:
  explicit Running(const std::vector<std::string>& args, const std::string& err = "/dev/null",
                   const std::vector<std::string>& env = {}, const std::string& out = "/dev/null");
  ~Running();
  void signal(int number);
  int wait();  // exit code, or -signal
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

// A directory of its own, removed at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  std::string path(const std::string& name = "") const;

 private:
  std::filesystem::path dir_;
};

std::string read_file(const std::string& path);
std::string newest_checkpoint(const std::string& run);  // path of the highest step
bool wait_for_file(const std::string& path, double seconds);
bool wait_for_text(const std::string& path, const std::string& text, double seconds);  // in the file
bool all_tests();  // LATHE_ALL is set: run the long versions

}  // namespace lathe::test
