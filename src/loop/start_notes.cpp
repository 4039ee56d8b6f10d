#include "loop/start_notes.h"

#include "base/format_bytes.h"

namespace lathe {
namespace {

std::string other_sets(const Compiled& c) {
  std::string text;
  for (const data::Split split : {data::Split::validation, data::Split::test})
    if (const int64_t n = c.data.samples(split); n > 0) text += fmt::format(", {} {}", n, data::to_string(split));
  return text;
}

}  // namespace

void note_start(const Compiled& c, const std::vector<std::string>& device_notes, ProgressSink& progress) {
  progress.note(fmt::format("{}: {} training samples{}, {} steps of {}, {} parameters, {} planned, device {}",
                            c.recipe.name, c.steps.samples, other_sets(c), c.steps.total_steps,
                            c.steps.batch * c.steps.accumulate, c.parameters(), format_bytes(c.memory().total()),
                            c.recipe.device.name));
  for (const std::string& note : device_notes) progress.note(c.recipe.device.name + ": " + note);
  if (const Recomputed again = recomputed(c.set.programs[0]); again.launches > 0)
    progress.note(fmt::format("memory.budget: {} launches of a step run again, {:.2f} % more FLOP", again.launches,
                              again.flops_percent));
  if (const int64_t wanted = eval_batch_of(c.recipe, c.data); c.eval_batch < wanted)
    progress.note(
        fmt::format("memory.budget: evaluation goes in batches of {} instead of {} samples", c.eval_batch, wanted));
}

}  // namespace lathe
