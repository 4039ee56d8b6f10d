// Monitor: what the evaluations of a run say about its course: which was the best, whether to stop, and what a plateau
// does to the learning rate. Its state goes into checkpoints as text and comes back bit for bit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "recipe/recipe.h"

namespace lathe {

class Monitor {
 public:
  explicit Monitor(const Recipe&);

  // An evaluation after `step` steps found `value` of train.monitor. `regular`: one that a longer run has too, so that
  // a plateau may count it. Returns whether it is the best so far. Allocates nothing.
  bool update(double value, int64_t step, bool regular);

  bool should_stop() const { return patience_ > 0 && track_.bad >= patience_; }
  int64_t evaluations_without_improvement() const { return track_.bad; }
  int64_t best_step() const { return track_.best ? track_.step : 0; }
  std::optional<double> best() const { return track_.best; }

  // Of the learning rate of a step, counted from 0. When an evaluation after n steps finds a plateau, step n is staged
  // already: the fall begins with step n + 1, in a resumed run as in one that was not interrupted.
  double factor(int64_t step) const { return step >= since_ ? factor_ : factor_before_; }

  using Info = std::map<std::string, std::string>;
  void save(Info&) const;
  void load(const Info&);  // what is not there stays as it starts

 private:
  struct Track {
    std::optional<double> best;
    int64_t step = 0, bad = 0;  // of the best; evaluations since then
  };
  bool improves(Track&, double value, int64_t step) const;

  bool higher_, plateau_;
  double min_delta_, gamma_;
  int64_t patience_, plateau_patience_;
  Track track_, plateau_track_;
  double factor_ = 1, factor_before_ = 1;
  int64_t since_ = 0;
};

}  // namespace lathe
