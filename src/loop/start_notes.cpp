#include "loop/start_notes.h"

#include "base/format_bytes.h"
#include "compile/link_text.h"
#include "passes/bucket.h"

namespace lathe {
namespace {

std::string other_sets(const Compiled& c) {
  std::string text;
  for (const data::Split split : {data::Split::validation, data::Split::test})
    if (const int64_t n = c.data.samples(split); n > 0) text += fmt::format(", {} {}", n, data::to_string(split));
  return text;
}

// Ranks that add up in blocks have none.
std::string buckets_text(const Compiled& c) {
  const int64_t bytes = c.recipe.passes.get<BucketOptions>().bytes.bytes;
  return bytes > 0 ? fmt::format("; buckets of {}", format_bytes(bytes)) : "";
}

}  // namespace

void note_start(const Compiled& c, const std::vector<std::string>& device_notes, ProgressSink& progress) {
  progress.note(fmt::format("{}: {} training samples{}, {} steps of {}, {} parameters, {} planned, device {}",
                            c.recipe.name, c.steps.samples, other_sets(c), c.steps.total_steps,
                            c.steps.batch * c.steps.accumulate, c.parameters(), format_bytes(c.memory().total()),
                            c.recipe.device.name));
  if (const int64_t idle = c.mesh.ranks - c.steps.batch; idle > 0)
    progress.note(fmt::format("warning: {} ranks divide batches of {} samples: {} of them {} nothing to do",
                              c.mesh.ranks, c.steps.batch, idle, idle == 1 ? "has" : "have"));
  if (c.mesh.ranks > 1) progress.note(fmt::format("link: {}{}", link_text(c.target.link), buckets_text(c)));
  for (const std::string& note : device_notes) progress.note(c.recipe.device.name + ": " + note);
  if (const Recomputed again = recomputed(c.set.programs[0]); again.launches > 0)
    progress.note(fmt::format("memory.budget: {} launches of a step run again, {:.2f} % more FLOP", again.launches,
                              again.flops_percent));
  if (const int64_t wanted = eval_batch_of(c.recipe, c.data); c.eval_batch < wanted)
    progress.note(
        fmt::format("memory.budget: evaluation goes in batches of {} instead of {} samples", c.eval_batch, wanted));
}

}  // namespace lathe
