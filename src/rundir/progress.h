// Progress of a run for people: one line that is redrawn on a terminal, plain lines otherwise.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace lathe {

// "0.3484"; "4.599e+20", "3.2e-07": as short where a number is huge or tiny. Allocates nothing.
template <class Out>
Out format_loss(Out to, double v) {
  const double size = std::fabs(v);
  if (std::isnan(v)) return fmt::format_to(to, "nan");  // its sign says nothing
  if (size >= 1e5 || (size > 0 && size < 1e-3)) return fmt::format_to(to, "{:.4g}", v);
  return fmt::format_to(to, "{:.4f}", v);
}
std::string loss_text(double);  // the same

// A number of an evaluation with its unit: "93.20 %", "31.44 dB", "0.9812". Allocates nothing.
template <class Out>
Out format_metric(Out to, std::string_view name, double value) {
  if (name == "accuracy" || name == "iou") return fmt::format_to(to, "{:.2f} %", 100 * value);
  if (name == "psnr" || name == "input_psnr") return fmt::format_to(to, "{:.2f} dB", value);
  return fmt::format_to(to, "{:.4g}", value);
}
std::string metric_text(std::string_view name, double value);  // the same

std::string format_seconds(double);  // "1:02:03", "42 s"
bool is_terminal(std::FILE*);        // rather than a file or pipe
int terminal_columns(std::FILE*);    // 80 where it is unknown

// Callbacks on the progress of a run: the library prints nothing itself. update() may be called after every step, and
// must be quick.
class ProgressSink {
 public:
  struct Line {                     // Where a run is.
    int64_t step = 0, total = 0;    // done and in all
    double epoch = 0;               // with its part
    double loss = 0, lr = 0;        // of the last step
    double samples_per_second = 0;  // of training
    double eta = 0;                 // seconds to the end
  };
  virtual ~ProgressSink() = default;               // for implementations
  virtual void update(const Line&) {}              // after a step
  virtual void note(std::string_view /*text*/) {}  // a line that is worth to be read: results, warnings
  virtual void finish() {}                         // nothing of this run follows
};

class TerminalProgress : public ProgressSink {  // Prints it.
 public:
  explicit TerminalProgress(std::FILE* out);  // where
  void update(const Line&) override;          // redraws, or prints a line when some seconds have passed
  void note(std::string_view text) override;  // a line of its own, above the bar
  void finish() override;                     // ends the line that is redrawn

 private:
  std::FILE* out_;
  bool terminal_, drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
  bool first_ = true;
};

}  // namespace lathe
