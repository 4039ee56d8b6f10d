// RunRecord: what a run leaves in its directory: recipe, data, log, checkpoints, summary. Of several ranks the first
// one writes all but its checkpoints, which they write together, and the others read what it chose to continue from;
// every rank makes the same calls.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "comm/group.h"
#include "rundir/run_checkpoints.h"
#include "rundir/run_data.h"
#include "workload/dataset.h"

namespace lathe {

struct TrainResult;  // loop/trainer.h

class RunRecord {
 public:
  // Makes the directory, a new one with `new_out`, and takes its lock. `group`: null where there is one rank; outlives
  // the record. UserError as RunCheckpoints.
  RunRecord(const Recipe&, RunPlace, bool new_out, ProgressSink&, comm::Group* group);

  const std::string& out() const { return place_.out; }  // the directory
  bool writes() const { return files_.has_value(); }     // of several ranks, this is the one

  // As RunCheckpoints; the same checkpoint on all ranks.
  std::optional<io::Checkpoint> restore(Session&, const Compiled&);
  // Before the first step from `step` on. `evaluated`: that step's evaluation is done.
  void begin(const Compiled&, Dataset&, int64_t step, bool evaluated);
  MetricsLog* log() { return log_ ? &*log_ : nullptr; }  // null: another rank writes it
  void publish(Which, Session&, const Compiled&, int64_t step, std::map<std::string, std::string> info);
  void summarize(const TrainResult&);

  std::optional<int64_t> newest();  // the step of the last checkpoint
  std::string what_is_left();       // of a run that ends here, for messages

 private:
  RunPlace place_;
  ProgressSink& progress_;
  comm::Group* group_;
  io::PosixFs fs_;
  std::optional<RunCheckpoints> files_;
  std::optional<MetricsLog> log_;
};

}  // namespace lathe
