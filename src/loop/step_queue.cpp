#include "loop/step_queue.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "passes/partition/vote.h"

namespace lathe {

StepQueue::StepQueue(Executor& executor, data::Loader& loader, int ahead, int slots, int first_slot)
    : executor_(executor), loader_(loader), ahead_(ahead), slots_(slots), offset_(first_slot) {
  static constexpr std::string_view kKnown[] = {"loss", "grad_norm", "accepted", "gradient_scale", kVote};
  for (const Program& p : executor.set().programs) {
    if (std::ranges::find(p.outputs, "accepted", &Port::name) == p.outputs.end()) continue;
    for (const Port& o : p.outputs) {
      scaled_ = scaled_ || o.name == "gradient_scale";
      voted_ = voted_ || (o.output_kind == OutputKind::metric && o.name == kVote);
      if (o.output_kind == OutputKind::metric && std::ranges::find(kKnown, o.name) == std::end(kKnown) &&
          std::ranges::find(added_, o.name) == added_.end())
        added_.push_back(o.name);
    }
  }
  LATHE_USER_CHECK(added_.size() <= StepMetrics::kMostAdded, "expected at most {} metrics of passes, got {}",
                   StepMetrics::kMostAdded, added_.size());
  LATHE_CHECK(ahead >= 1 && ahead <= kMostRuns && slots >= 1 && slots <= kMostSlots, "{} runs, {} slots", ahead, slots);
}

void StepQueue::make_room() {
  const int half = (runs_ + 1) / 2;
  executor_.pause_until_done(submitted_[static_cast<size_t>((first_run_ + half - 1) % kMostRuns)].run);
  done_ = std::max(done_, half);
}

void StepQueue::wait() {
  executor_.synchronize();
  done_ = runs_;
}

bool StepQueue::submit(size_t program, int slot, int64_t step, Part part) {
  LATHE_CHECK(!full());
  const int at = (first_run_ + runs_) % kMostRuns;
  // Counted before it is submitted: if the device fails now, this is the step that it failed in.
  submitted_[static_cast<size_t>(at)] = {-1, step, part};
  ++runs_;
  const int64_t run = executor_.run(program, slot);
  submitted_[static_cast<size_t>(at)].run = run;
  if (run < 0) --runs_;
  return run >= 0;
}

void StepQueue::release(int slot) {
  moving_[static_cast<size_t>((first_slot_ + held_++) % kMostSlots)] = slot;
  while (held_ > 0 && executor_.has_moved(offset_ + moving_[static_cast<size_t>(first_slot_)])) release_oldest();
}

void StepQueue::free_slots() {
  if (held_ < slots_) return;
  const int half = (held_ + 1) / 2;
  executor_.pause_until_moved(offset_ + moving_[static_cast<size_t>((first_slot_ + half - 1) % kMostSlots)]);
  for (int i = 0; i < half; ++i) release_oldest();
}

void StepQueue::release_oldest() {
  loader_.release(moving_[static_cast<size_t>(first_slot_)]);
  first_slot_ = (first_slot_ + 1) % kMostSlots;
  --held_;
}

void StepQueue::release_all() {
  LATHE_CHECK(empty());
  while (held_ > 0) release_oldest();
}

std::optional<StepQueue::Submitted> StepQueue::take() {
  if (runs_ == 0) return {};
  const Submitted front = submitted_[static_cast<size_t>(first_run_)];
  if (done_ == 0 && !executor_.is_done(front.run)) return {};
  done_ = std::max(0, done_ - 1);
  first_run_ = (first_run_ + 1) % kMostRuns;
  --runs_;
  return front;
}

std::optional<StepMetrics> StepQueue::next() {
  while (const auto submitted = take()) {
    if (submitted->part.loss) loss_ += executor_.metric(submitted->run, "loss");
    if (!submitted->part.last) continue;
    StepMetrics m{submitted->step, loss_, executor_.metric(submitted->run, "grad_norm"), true};
    if (voted_) m.stop = executor_.metric(submitted->run, kVote) > 0;
    if (scaled_) m.gradient_scale = executor_.metric(submitted->run, "gradient_scale");
    for (size_t i = 0; i < added_.size(); ++i) m.added[i] = executor_.metric(submitted->run, added_[i]);
    m.names = added_;
    m.accepted = executor_.metric(submitted->run, "accepted") != 0 && std::isfinite(m.loss);
    loss_ = 0;
    return m;
  }
  return {};
}

std::optional<int64_t> StepQueue::oldest() const {
  if (runs_ == 0) return {};
  return submitted_[static_cast<size_t>(first_run_)].step;
}

}  // namespace lathe
