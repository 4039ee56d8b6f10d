// What each rank of a run did. The first one gathers it when the run ends: for summary.json, report.html and people.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/group.h"

namespace lathe {

struct TrainResult;  // loop/trainer.h

struct RankRow {             // Of one rank, in training steps since the start or --resume.
  int rank = 0;              // from 0
  std::string host;          // that it ran on, for people
  int64_t steps = 0;         // that it did
  double seconds = 0;        // that they took
  double communication = 0;  // seconds in collectives: waiting for other ranks, and moving bytes
  double exposed = 0;        // seconds that the compute lane waited for them: what computation did not hide
  double data = 0;           // seconds of waiting for data
  double flops = 0;          // per second
  int64_t predicted = 0;     // bytes, by the plan
  int64_t allocated = 0;     // bytes: as many
  int64_t resident = 0;      // bytes, peak of its process: that of all ranks where they are threads of one
};

// Of all ranks, on the first one; nothing on the others. Every rank calls it, with its own result and steps.
std::vector<RankRow> gather_ranks(comm::Group&, const TrainResult&, int64_t steps);

// The same; and what the first rank tells then is that of all. `is_one_process`: ranks are threads of it.
void sum_up_ranks(comm::Group&, int64_t steps, bool is_one_process, TrainResult&);

// Seconds of a rank's own in its steps: computing and waiting for data. The rest is waiting for communication.
double own_seconds(const RankRow&);
// How much more of them a rank has than the one that has least: so long did others wait for it, summed over the steps.
// Delays of different ranks in turn cancel out. Pauses between steps, of the one that writes a checkpoint, do not
// count.
double late_seconds(std::span<const RankRow>, const RankRow&);
// The one that the others waited for most; null: there are not two.
const RankRow* find_straggler(std::span<const RankRow>);
// "rank 2 on h3: another one waited 1.2 s for it, 4.1 % of the time"; empty: there are not two ranks with steps.
std::string straggler_text(std::span<const RankRow>);

std::string to_json(const RankRow&);            // one object
RankRow parse_rank_row(std::string_view json);  // what is not there, or no number, is 0

}  // namespace lathe
