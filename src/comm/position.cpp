#include "comm/position.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace lathe::comm {
namespace {

int64_t monotonic_ns() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

std::string to_string(const Place& p) {
  if (p.step < 0 && p.number == 0) return "before the first step";
  const std::string step = p.step < 0 ? "before the first step" : fmt::format("at step {}", p.step);
  if (p.in_step == 0) return fmt::format("{} before its first collective", step);
  // Those between steps follow the step's own.
  const bool is_counted = p.per_step > 0 && p.in_step <= p.per_step;
  return fmt::format("{} {} collective {}{} ({})", step, p.inside ? "in" : "after", p.in_step,
                     is_counted ? fmt::format(" of {}", p.per_step) : "", p.label);
}

Position::Position() : since_ns_(monotonic_ns()) { labels_.emplace_back("a collective"); }

int32_t Position::add_label(std::string_view name) {
  const std::lock_guard lock(mutex_);
  if (const auto known = ids_.find(name); known != ids_.end()) return known->second;
  LATHE_CHECK(labels_.size() < size_t{1} << kLabelBits, "{} labels", labels_.size());
  const auto id = static_cast<int32_t>(labels_.size());
  ids_.emplace(labels_.emplace_back(name), id);
  return id;
}

void Position::set_step(int64_t step) {
  before_step_.store(static_cast<int64_t>(word_.load(std::memory_order_relaxed) >> (kLabelBits + 1)),
                     std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
  const int64_t waited = waited_ns_.load(std::memory_order_relaxed);
  // A reader that sees the new time sees the step that is not there, too (marks()).
  for (int k = 0; k < kMarks && step % (int64_t{1} << k) == 0; ++k) {
    AtomicMark& m = marks_[static_cast<size_t>(k)];
    m.step.store(-1, std::memory_order_relaxed);
    m.waited_ns.store(waited, std::memory_order_release);
    m.step.store(step, std::memory_order_release);
  }
}

void Position::enter(int32_t label) {
  const uint64_t number = (word_.load(std::memory_order_relaxed) >> (kLabelBits + 1)) + 1;
  since_ns_.store(monotonic_ns(), std::memory_order_relaxed);
  word_.store(number << (kLabelBits + 1) | static_cast<uint64_t>(label) << 1 | 1, std::memory_order_release);
}

void Position::leave() {
  const int64_t now = monotonic_ns(), since = since_ns_.load(std::memory_order_relaxed);
  waited_ns_.store(waited_ns_.load(std::memory_order_relaxed) + now - since, std::memory_order_relaxed);
  since_ns_.store(now, std::memory_order_relaxed);
  word_.store(word_.load(std::memory_order_relaxed) & ~uint64_t{1}, std::memory_order_release);
}

Place Position::read() const {
  const uint64_t word = word_.load(std::memory_order_acquire);
  Place p;
  p.number = static_cast<int64_t>(word >> (kLabelBits + 1));
  p.inside = word & 1;
  // The time may belong to what comes next already: then it is short, and nobody is called late.
  p.seconds =
      1e-9 * static_cast<double>(std::max<int64_t>(0, monotonic_ns() - since_ns_.load(std::memory_order_relaxed)));
  p.step = step_.load(std::memory_order_relaxed);
  p.in_step = std::max<int64_t>(0, p.number - before_step_.load(std::memory_order_relaxed));
  p.per_step = per_step_.load(std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  p.label = labels_[static_cast<size_t>(word >> 1 & ((1u << kLabelBits) - 1))];
  return p;
}

std::array<Position::Mark, Position::kMarks> Position::marks() const {
  std::array<Mark, kMarks> out;
  for (size_t k = 0; k < out.size(); ++k) {
    const AtomicMark& m = marks_[k];
    const int64_t step = m.step.load(std::memory_order_acquire);
    const int64_t waited = m.waited_ns.load(std::memory_order_acquire);
    if (m.step.load(std::memory_order_relaxed) == step) out[k] = {step, waited};
  }
  return out;
}

}  // namespace lathe::comm
