// Stragglers: how long the others waited for each rank, from the time that ranks spend in collectives. Who waits least
// is the one that is waited for. Steps in which all are known are compared, so ranks need not be read at the same time.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/position.h"

namespace lathe::comm {

struct Straggler {     // A row of the report.
  int rank = 0;        // which
  std::string host;    // for people
  double late = 0;     // seconds that it spent outside of collectives, more than the rank that spent least
  double waited = 0;   // seconds in collectives
  double largest = 0;  // of `late` per step, between two comparisons
};

class Stragglers {  // Sums up who waited for whom.
 public:
  explicit Stragglers(int ranks);                       // of so many
  void set(int rank, std::span<const Position::Mark>);  // as read of that rank; the others follow
  void compare();                                       // adds what all ranks have in common since the last time
  int64_t steps() const { return steps_; }              // that were compared
  std::vector<Straggler> rows() const;                  // by rank, without hosts

 private:
  std::vector<std::array<Position::Mark, Position::kMarks>> marks_;  // by rank
  std::vector<Position::Mark> before_;                               // at the last comparison, by rank
  std::vector<Straggler> rows_;
  int64_t steps_ = 0;
};

// The rows as a table, the latest first.
std::string to_table(std::span<const Straggler>, int64_t steps);

}  // namespace lathe::comm
