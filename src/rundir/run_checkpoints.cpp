#include "rundir/run_checkpoints.h"

#include <algorithm>

#include "backend/cpu/isa.h"
#include "base/version.h"
#include "session/publish.h"

namespace lathe {
namespace {

// What equal bits are promised for.
std::string instruction_set(const Compiled& c) {
  return c.target.name == "cpu" ? fmt::format("cpu {}", cpu::active_isa()) : c.target.name;
}

Keep files_of(Which which) { return which == Which::best ? Keep::model : Keep::all; }

}  // namespace

RunCheckpoints::RunCheckpoints(const Recipe& r, RunPlace place, ProgressSink& progress)
    : place_(std::move(place)),
      progress_(progress),
      checkpoints_(io::join_path(place_.out, kCheckpointFolder)),
      best_(io::join_path(place_.out, kBestFolder)),
      retention_(r.checkpoint.keep_last) {
  io::make_dirs(fs_, place_.out);
  lock_.emplace(place_.out, io::RunLockOptions{.job_id = job_id()});
  if (!lock_->taken_over_from().empty())
    progress_.note(fmt::format("{}: taking over from {}, which has ended", place_.out, lock_->taken_over_from()));
  io::Notes notes;
  if (io::info_at(fs_, checkpoints_)) {
    if (!place_.resume && !io::list_steps(fs_, checkpoints_).empty())
      throw UserError(
          fmt::format("{}: holds checkpoints of an earlier run; continue with it (--resume, TrainOptions::resume), or "
                      "choose another directory (--out)",
                      place_.out),
          Exit::cannot_create);
    io::clean_leftovers(fs_, checkpoints_, notes);
  } else {
    io::make_dirs(fs_, checkpoints_);
  }
  if (r.checkpoint.best) io::make_dirs(fs_, best_);
  if (io::info_at(fs_, best_)) io::clean_leftovers(fs_, best_, notes);
  for (const std::string& n : notes) progress_.note(n);
  if (place_.resume && !io::list_steps(fs_, checkpoints_).empty()) check_same_recipe(fs_, place_.out, r);
}

std::optional<io::Checkpoint> RunCheckpoints::restore(Session& session, const Compiled& c) {
  io::Notes notes;
  std::optional<io::Checkpoint> found;
  if (place_.resume)
    found = io::find_newest_valid(fs_, checkpoints_,
                                  c.recipe.checkpoint.verify == "full" ? io::Verify::full : io::Verify::size, notes);
  for (const std::string& n : notes) progress_.note(n);
  if (!found) {
    if (place_.resume)
      progress_.note(fmt::format("no {}checkpoint: starting from the beginning",
                                 io::list_steps(fs_, checkpoints_).empty() ? "" : "valid "));
    session.initialize(c.recipe.seed);
    return std::nullopt;
  }
  if (found->manifest.isa != instruction_set(c))
    progress_.note(fmt::format(
        "warning: the checkpoint was made with {}, this run computes with {}: results will differ in the last bits",
        found->manifest.isa, instruction_set(c)));
  check_same_passes(*found);
  session.load_files(found->path);
  return found;
}

// "fuse +mine": a pass left out, one added.
std::string RunCheckpoints::passes_text() const {
  return fmt::format("{}", fmt::join(pipeline_changes(place_.passes), " "));
}

// The recipe was compared before, key by key; passes are no part of it. A checkpoint made by other means says nothing.
void RunCheckpoints::check_same_passes(const io::Checkpoint& found) const {
  const auto passes = found.manifest.info.find("disabled_passes");
  if (passes == found.manifest.info.end() || passes->second == passes_text()) return;
  const auto named = [](const std::string& names) { return names.empty() ? std::string("none") : names; };
  throw UserError(
      fmt::format("{}: was written by a run with other passes: left out or (+) added there: {}; here: {}. It "
                  "would compute other numbers; resume with the same --disable-pass, or with the program "
                  "that added them, or choose another --out",
                  found.path, named(passes->second), named(passes_text())),
      Exit::bad_recipe);
}

void help_publish(Which which, Session& session, const Compiled& c, comm::Group& group) {
  io::PosixFs fs;
  try {
    publish_checkpoint(
        &group, fs, "", "", [] { return io::Manifest(); }, session.files(files_of(which)));
  } catch (const UserError&) {
    if (c.recipe.checkpoint.on_error != "warn") throw;  // the first rank warns
  }
}

void RunCheckpoints::publish(Which which, Session& session, const Compiled& c, int64_t step,
                             std::map<std::string, std::string> info, MetricsLog& log, comm::Group* group) {
  const bool best = which == Which::best;
  const std::string& folder = best ? best_ : checkpoints_;
  io::Notes notes;
  try {
    const auto about = [&] {
      io::Manifest m;
      m.step = step;
      m.recipe_hash = recipe_hash(c.recipe, pipeline_changes(place_.passes));
      m.software = fmt::format("lathe {}", kVersion);
      m.isa = instruction_set(c);
      m.info = std::move(info);
      m.info["disabled_passes"] = passes_text();
      log.sync();
      return m;
    };
    publish_checkpoint(group, fs_, folder, job_id(), about, session.files(files_of(which)));
    (best ? best_retention_ : retention_).apply(fs_, folder, notes);
  } catch (const UserError& e) {
    if (c.recipe.checkpoint.on_error != "warn") throw;
    notes.push_back(fmt::format("warning: no checkpoint at step {} in {}: {}", step, folder, e.what()));
  }
  for (const std::string& n : notes) progress_.note(n);
}

std::optional<int64_t> RunCheckpoints::newest() {
  const auto steps = io::list_steps(fs_, checkpoints_);
  return steps.empty() ? std::nullopt : std::optional(std::ranges::max(steps));
}

}  // namespace lathe
