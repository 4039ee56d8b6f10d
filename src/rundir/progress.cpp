#include "rundir/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace lathe {

std::string loss_text(double v) {
  std::string text;
  format_loss(std::back_inserter(text), v);
  return text;
}

std::string metric_text(std::string_view name, double value) {
  std::string text;
  format_metric(std::back_inserter(text), name, value);
  return text;
}

std::string format_seconds(double s) {
  if (!(s >= 0) || s > 1e9) return "?";
  if (s < 10) return fmt::format("{:.1f} s", s);
  if (s < 60) return fmt::format("{:.0f} s", s);
  const auto t = static_cast<int64_t>(s + 0.5);
  if (t < 3600) return fmt::format("{}:{:02}", t / 60, t % 60);
  return fmt::format("{}:{:02}:{:02}", t / 3600, t / 60 % 60, t % 60);
}

bool is_terminal(std::FILE* f) { return isatty(fileno(f)) == 1; }

int terminal_columns(std::FILE* f) {
  winsize w{};
  return ioctl(fileno(f), TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

namespace {

constexpr double kRedraw = 0.1, kPlain = 5.0;  // seconds between two lines

}  // namespace

TerminalProgress::TerminalProgress(std::FILE* out) : out_(out), terminal_(is_terminal(out)) {}

void TerminalProgress::update(const Line& l) {
  const auto now = std::chrono::steady_clock::now();
  const double since = std::chrono::duration<double>(now - last_).count();
  if (!first_ && l.step < l.total && since < (terminal_ ? kRedraw : kPlain)) return;
  first_ = false;
  last_ = now;
  const double done = l.total > 0 ? static_cast<double>(l.step) / static_cast<double>(l.total) : 0;
  fmt::memory_buffer text;  // its own 500 bytes are enough: no allocation
  fmt::format_to(std::back_inserter(text), "step {}/{}  epoch {:.2f}  loss ", l.step, l.total, l.epoch);
  format_loss(std::back_inserter(text), l.loss);
  fmt::format_to(std::back_inserter(text), "  lr {:.2g}  {:.0f}/s  ETA {}", l.lr, l.samples_per_second,
                 format_seconds(l.eta));
  std::string_view shown(text.data(), text.size());
  if (!terminal_) {
    fmt::print(out_, "{}\n", shown);
    std::fflush(out_);
    return;
  }
  const int width = terminal_columns(out_), room = width - static_cast<int>(shown.size()) - 9;
  fmt::memory_buffer bar;
  if (room >= 8) {
    const int cells = std::min(room, 40), full = static_cast<int>(done * cells);
    for (int i = 0; i < cells; ++i) bar.append(std::string_view(i < full ? "█" : "░"));
    bar.push_back(' ');
  }
  shown = shown.substr(0, static_cast<size_t>(std::max(10, width - 7)));
  fmt::print(out_, "\r\033[K{}{:3.0f}% {}", std::string_view(bar.data(), bar.size()), done * 100, shown);
  std::fflush(out_);
  drawn_ = true;
}

void TerminalProgress::note(std::string_view text) {
  fmt::print(out_, "{}{}\n", drawn_ ? "\r\033[K" : "", text);
  std::fflush(out_);
  drawn_ = false;
}

void TerminalProgress::finish() {
  if (drawn_) fmt::print(out_, "\n");
  drawn_ = false;
  std::fflush(out_);
}

}  // namespace lathe
