// Progress of a run for people: one line that is redrawn on a terminal, plain lines otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace lathe {

std::string format_bytes(int64_t);   // "12.3 MiB"
std::string format_seconds(double);  // "1:02:03", "42 s"
bool is_terminal(std::FILE*);

class Progress {
 public:
  struct Line {
    int64_t step = 0, total = 0;
    double epoch = 0;
    double loss = 0, lr = 0;
    double samples_per_second = 0;
    double eta = 0;
  };

  Progress(std::FILE* out, bool quiet);
  void update(const Line&);          // redraws, or prints a line when some seconds have passed
  void note(std::string_view text);  // a line of its own, above the bar
  void finish();

 private:
  std::FILE* out_;
  bool quiet_, terminal_, drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
  bool first_ = true;
};

}  // namespace lathe
