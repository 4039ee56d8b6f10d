// The checkpoints of one run: its directory and lock, what --resume continues from, what is written and what is
// dropped.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "comm/group.h"
#include "io/checkpoint.h"
#include "io/run_lock.h"
#include "rundir/open_run.h"
#include "rundir/progress.h"
#include "rundir/run_dir.h"
#include "session/state.h"

namespace lathe {

// Keys of Manifest::info: seconds of training up to the checkpoint, and the step from which on they were counted.
inline constexpr const char* kSecondsInfo = "training_seconds";
inline constexpr const char* kTimedFromInfo = "timed_from_step";
inline constexpr const char* kEvaluationDueInfo = "evaluation_due";  // a signal ended the evaluation of its step
inline constexpr const char* kHeldOutInfo = "held_out";  // which samples are held out for validation: a fingerprint

struct RunPlace {               // Where a run lives.
  std::string out;              // its directory
  bool resume = false;          // continue from the newest valid checkpoint, if there is one
  PipelineOptions passes = {};  // that differ from the pipeline's are noted in the checkpoints
};

// What the other ranks do in RunCheckpoints::publish().
void help_publish(Which, Session&, const Compiled&, comm::Group&);

class RunCheckpoints {
 public:
  // Makes the directories, takes the lock and cleans up after a process that died. UserError: the directory holds
  // another run, or this recipe computes other numbers than the run that it resumes.
  RunCheckpoints(const Recipe&, RunPlace, ProgressSink&);

  // With resume, puts the newest valid checkpoint into the session; without one, the state's first values.
  std::optional<io::Checkpoint> restore(Session&, const Compiled&);

  // Writes the state as it is after `step`; `info` is for restore(). A directory that cannot be written is an error, or
  // a warning where checkpoint.on_error says so. `group`: of the ranks that write it together, of which this is the
  // first one; the others call help_publish(). Null: one rank.
  void publish(Which, Session&, const Compiled&, int64_t step, std::map<std::string, std::string> info, MetricsLog&,
               comm::Group* group);

  std::optional<int64_t> newest();  // the step of the last one

 private:
  void check_same_passes(const io::Checkpoint& found) const;
  std::string passes_text() const;

  RunPlace place_;
  ProgressSink& progress_;
  io::PosixFs fs_;
  std::string checkpoints_, best_;
  std::optional<io::RunLock> lock_;
  io::Retention retention_, best_retention_{1};
};

}  // namespace lathe
