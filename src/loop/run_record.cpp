#include "loop/run_record.h"

#include "comm/text.h"
#include "loop/summary.h"
#include "loop/trainer.h"
#include "rundir/run_dir.h"

namespace lathe {

RunRecord::RunRecord(const Recipe& r, RunPlace place, bool new_out, ProgressSink& progress, comm::Group* group)
    : place_(std::move(place)), progress_(progress), group_(group) {
  if (!group_ || group_->rank() == 0) {
    if (new_out) place_.out = io::make_new_dir(fs_, place_.out);
    files_.emplace(r, place_, progress_);
  }
  if (group_) place_.out = comm::broadcast_text(*group_, place_.out);
}

std::optional<io::Checkpoint> RunRecord::restore(Session& session, const Compiled& c) {
  if (!group_) return files_->restore(session, c);
  std::optional<io::Checkpoint> found;
  if (files_) found = files_->restore(session, c);
  const std::string path = comm::broadcast_text(*group_, found ? found->path : "");
  if (files_) return found;
  if (path.empty()) {
    session.initialize(c.recipe.seed);
    return std::nullopt;
  }
  io::Inspection seen = io::inspect_checkpoint(fs_, path, io::Verify::size);
  if (seen.status != io::Inspection::Status::valid)
    throw UserError(fmt::format("{}: the first rank continues from it, rank {} cannot: {}; do all ranks see one file "
                                "system?",
                                path, group_->rank(), seen.reason),
                    Exit::missing_input);
  session.load_files(path);
  return io::Checkpoint{path, std::move(seen.manifest)};
}

void RunRecord::begin(const Compiled& c, Dataset& data, int64_t step, bool evaluated) {
  if (!files_) return;
  fs_.remove_file(io::join_path(out(), kSummaryFile));  // of an earlier part: how this one ends is open
  replace_text(fs_, io::join_path(out(), "recipe.toml"), to_toml(c.recipe));
  if (data.preparation && !write_run_data(fs_, out(), {data.spec, *data.preparation}))
    progress_.note(
        fmt::format("warning: no {}, which would be too large: a prediction will ask for the data", kRunDataFile));
  data.preparation.reset();
  log_.emplace(fs_, out(), step, evaluated);
}

void RunRecord::publish(Which which, Session& session, const Compiled& c, int64_t step,
                        std::map<std::string, std::string> info) {
  if (files_)
    files_->publish(which, session, c, step, std::move(info), *log_, group_);
  else
    help_publish(which, session, c, *group_);
}

void RunRecord::summarize(const TrainResult& r) {
  if (files_) replace_text(fs_, io::join_path(out(), kSummaryFile), summary_json(r));
}

std::optional<int64_t> RunRecord::newest() { return files_ ? files_->newest() : std::nullopt; }

std::string RunRecord::what_is_left() {
  const auto step = newest();
  return step ? fmt::format("the checkpoint of step {} is intact: {}", *step, out()) : "there is no checkpoint yet";
}

}  // namespace lathe
