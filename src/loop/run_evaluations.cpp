#include "loop/run_evaluations.h"

#include <cmath>

#include "recipe/recipe_errors.h"

namespace lathe {

RunEvaluations::RunEvaluations(const Compiled& c, Executor& e, const Dataset& dataset)
    : monitor_(c.recipe.train.monitor) {
  if (const data::Source* source = dataset.of(data::Split::validation))
    validation_ = std::make_unique<Evaluation>(c, e, *source, data::Split::validation);
  if (const data::Source* source = dataset.of(data::Split::test))
    test_ = std::make_unique<Evaluation>(c, e, *source, data::Split::test);
}

std::optional<RunEvaluations::Found> RunEvaluations::run(const When& when) {
  auto followed = (validation_ ? *validation_ : *test_).run(when.stop);
  if (!followed) return std::nullopt;
  Found found{*followed, {}};
  if (validation_ && test_ && ends(found.followed, when)) {
    found.test = test_->run(when.stop);
    if (!found.test) return std::nullopt;
  }
  return found;
}

bool RunEvaluations::ends(const EvalResult& r, const When& when) const {
  if (when.last || !when.monitor) return when.last;
  Monitor after = *when.monitor;
  after.update(monitored(r), when.step, when.regular);
  return after.should_stop();
}

double RunEvaluations::monitored(const EvalResult& r) const {
  double found = monitor_ == "loss" ? r.loss : std::nan("");
  r.each([&](std::string_view name, double value) {
    if (name == monitor_) found = value;
  });
  return found;
}

void check_selection(const Recipe& r, bool has_validation) {
  const char* key = r.train.patience > 0              ? "train.patience"
                    : r.checkpoint.best               ? "checkpoint.best"
                    : follows_evaluations(r.schedule) ? "schedule.name"
                                                      : nullptr;
  if (!key || has_validation) return;
  throw_recipe_error(r, {key, "data.validation"},
                     "expected a validation set to choose by, got none; data.validation = 0.1 holds a tenth of the "
                     "training samples out (a program may give TrainOptions::validation_data). Nothing is chosen by "
                     "test data: their numbers would be too good");
}

}  // namespace lathe
