// Rules that join several keys of a recipe.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "nn/families/model.h"
#include "nn/optimizers/rules.h"
#include "nn/schedule.h"
#include "nn/step/loss.h"
#include "nn/step/step.h"
#include "passes/techniques/average.h"
#include "recipe/eval_metrics.h"
#include "recipe/recipe_keys.h"
#include "recipe/sources/source.h"

namespace lathe {
namespace {

// The image shape where the recipe alone determines it.
Ints known_image_shape(const Recipe& r) {
  const SourceFacts& source = facts_of(r);
  // Of arrays the recipe of a run has it; one that was written before them need not.
  if (const auto* shape = r.data.source.params.find<Ints>("shape");
      shape && (!source.own || r.origins.keys.contains("data.shape")))
    return *shape;
  if (source.shape[0] > 0) return {source.shape.begin(), source.shape.end()};
  return {};
}

bool labels_each_token(const Recipe& r) {
  const auto tokens = token_input(r.model);
  return tokens && tokens->label_each;
}

// A loss that does not fit the target is named with those that do.
void check_loss(const Recipe& r, RuleReport& report) {
  const LossRule* rule = find_loss(r.train.loss.name);
  if (!rule || is_auto(r.train.loss)) return;
  const auto is_for = [](const LossRule& l, Task t) {
    return std::ranges::find(l.info.tasks, t) != l.info.tasks.end();
  };
  const Task task = task_of(r);
  const bool each_token = labels_each_token(r);
  if (is_for(*rule, task) && !(each_token && task == Task::embed)) {
    if (task != Task::embed) return;
    const std::pair<const char*, int64_t> batches[] = {{"train.batch_size", r.train.batch_size},
                                                       {"train.eval_batch", r.train.eval_batch}};
    for (const auto& [key, samples] : batches)
      if (samples == 1)
        report.fail({key}, fmt::format("expected at least 2 for \"{}\", which compares the samples of a batch, got 1",
                                       r.train.loss.name));
    return;
  }
  std::vector<std::string> names;
  for (const LossRule& l : loss_rules())
    if (is_for(l, task == Task::embed ? Task::classify : task) ||
        (label_kind_of(r) == data::LabelKind::class_index && !each_token && is_for(l, Task::embed)))
      names.push_back(quote_toml(l.name()));
  report.fail({"train.loss", "data.target"},
              fmt::format("expected {} or \"auto\" for data.target = \"{}\"{}, got \"{}\"", fmt::join(names, ", "),
                          r.data.target, each_token ? " of each token" : "", r.train.loss.name));
}

bool wants_pixels(const Recipe& r) {
  return label_kind_of(r) == data::LabelKind::mask || label_kind_of(r) == data::LabelKind::image;
}

// Whether the family gives what the target needs.
void check_output(const Recipe& r, RuleReport& report) {
  const NetOutput output = find_family(r.model.family).info.output;
  const bool pixels = wants_pixels(r);
  if (pixels && output == NetOutput::sample) {
    std::vector<std::string> names;
    for (const ModelFamily& f : model_families())
      if (f.info.output != NetOutput::sample) names.push_back(quote_toml(f.name()));
    report.fail({"model.family", "data.target"}, fmt::format("expected {} for data.target = \"{}\", got \"{}\"",
                                                             fmt::join(names, " or "), r.data.target, r.model.family));
  }
  if (!pixels && output == NetOutput::pixel) {
    report.fail({"model.family", "data.target"}, fmt::format("expected data.target = \"mask\" or \"image\" for \"{}\", "
                                                             "got \"{}\"",
                                                             r.model.family, r.data.target));
  }
}

// The sources with that target, in words: files before generated data, those for few targets first.
std::string sources_with(data::LabelKind target) {
  if (target == data::LabelKind::image) return "images";
  std::vector<const SourceFacts*> rows;
  for (const SourceRule* rule : source_rules())
    if (!rule->facts.own && rule->facts.targets.has(target)) rows.push_back(&rule->facts);
  std::ranges::stable_sort(rows, {}, [](const SourceFacts* f) { return std::pair(!f->reads_path, f->targets.size()); });
  std::vector<std::string> names;
  for (const SourceFacts* f : rows) names.push_back(quote_toml(f->name));
  return fmt::format("{} or arrays", fmt::join(names, ", "));
}

void check_target(const Recipe& r, RuleReport& report) {
  const data::LabelKind target = label_kind_of(r);
  const SourceRule& source = source_of(r);
  const SourceFacts& facts = source.facts;
  // For tokens pixels are no target of the family either, which check_output says.
  if (!facts.targets.has(target) && !(is_text(facts) && wants_pixels(r))) {
    report.fail({"data.target", "data.source"}, fmt::format("expected {} as data.source for \"{}\", got \"{}\"",
                                                            sources_with(target), r.data.target, r.data.source.name));
  }
  check_output(r, report);
  const int64_t fewest = facts.mask_classes > 0 ? facts.mask_classes : 2;
  const int64_t most = facts.mask_classes > 0 ? facts.mask_classes : 256;
  if (target == data::LabelKind::mask && (r.data.classes < fewest || r.data.classes > most)) {
    report.fail(
        {"data.classes", "data.target"},
        fmt::format("expected {}, the background included, for data.target = \"mask\", got {}",
                    fewest == most ? std::to_string(most) : fmt::format("{} to {}", fewest, most), r.data.classes));
  }
  if (source.check) source.check(r, report);
  check_loss(r, report);
  if (const EvalMetric* metric = find_eval_metric(r.train.monitor); metric && !metric->targets.has(target)) {
    std::vector<std::string> names;
    for (const EvalMetric& m : kEvalMetrics)
      if (m.targets.has(target)) names.push_back(fmt::format("\"{}\"", m.name));
    report.fail({"train.monitor", "data.target"}, fmt::format("expected one of {} for data.target = \"{}\", got \"{}\"",
                                                              fmt::join(names, ", "), r.data.target, r.train.monitor));
  }
  if (r.train.monitor == "iou" && target == data::LabelKind::mask && r.data.classes > kMostMaskClasses) {
    report.fail({"train.monitor", "data.classes"},
                fmt::format("expected another metric than \"iou\" for more than {} classes, got {}", kMostMaskClasses,
                            r.data.classes));
  }
}

// The sources that the family is for, in words; "" where the recipe has one.
std::string other_sources(const Recipe& r) {
  const auto quoted = [](bool (*wanted)(const SourceFacts&)) {
    std::vector<std::string> names;
    for (const std::string_view name : source_names(wanted)) names.push_back(quote_toml(name));
    return fmt::format("{}", fmt::join(names, ", "));
  };
  const SourceTokens tokens = facts_of(r).tokens;
  if (!takes_tokens(r)) {
    if (tokens != SourceTokens::per_position) return "";
    return fmt::format("images ({}) or numbers ({})",
                       quoted([](const SourceFacts& f) { return f.images && !f.numbers; }),
                       quoted([](const SourceFacts& f) { return f.numbers; }));
  }
  if (labels_each_token(r)) return tokens == SourceTokens::per_position ? "" : quoted(is_text);
  if (tokens == SourceTokens::per_sample) return "";
  return quoted([](const SourceFacts& f) { return f.tokens == SourceTokens::per_sample; });
}

void check_data(const Recipe& r, RuleReport& report) {
  const SourceFacts& source = facts_of(r);
  if (!source.path.empty() && r.data.path.empty()) {
    report.fail({"data.path", "data.source"},
                fmt::format("expected {} for data.source = \"{}\", got \"\"", source.path, source.name));
  }
  check_target(r, report);
  if (source.classes > 0 && label_kind_of(r) == data::LabelKind::class_index && r.data.classes != source.classes) {
    report.fail({"data.classes"}, fmt::format("expected {} for data.source = \"{}\", got {}", source.classes,
                                              source.name, r.data.classes));
  }
  if (const std::string wanted = other_sources(r); !wanted.empty()) {
    report.fail({"data.source", "model.family"}, fmt::format("expected {} for model.family = \"{}\", got \"{}\"",
                                                             wanted, r.model.family, r.data.source.name));
  }
  const int64_t batch = r.train.batch_size;
  if (r.data.train_samples > 0) {
    const auto held_out = static_cast<int64_t>(r.data.validation * static_cast<double>(r.data.train_samples));
    if (r.data.train_samples - held_out < batch) {
      report.fail({"data.train_samples", "train.batch_size"},
                  fmt::format("expected at least train.batch_size = {} samples{}, got {}", batch,
                              held_out > 0 ? " after data.validation" : "", r.data.train_samples - held_out));
    }
  }
  const Doubles &mean = r.data.normalize.mean, &deviation = r.data.normalize.std;
  if (mean.size() != deviation.size()) {
    report.fail(
        {"data.normalize.std", "data.normalize.mean"},
        fmt::format("expected as many numbers as data.normalize.mean ({}), got {}", mean.size(), deviation.size()));
  }
  if (const Ints shape = known_image_shape(r); !shape.empty()) check_image_rules(r, shape, report);
}

// Of the rules of a family, whose keys are those of [model].
class ModelReport final : public RuleReport {
 public:
  explicit ModelReport(RuleReport& to) : to_(to) {}
  void report(std::span<const std::string_view> keys, const std::string& message) override {
    std::vector<std::string> paths;
    for (std::string_view key : keys) paths.push_back("model." + std::string(key));
    const std::vector<std::string_view> views(paths.begin(), paths.end());
    to_.report(views, message);
  }

 private:
  RuleReport& to_;
};

void check_sample(const Recipe& r, const TensorType& sample, int64_t outputs, RuleReport& report) {
  const ModelFamily& family = find_family(r.model.family);
  ModelReport of_model(report);
  if (family.check_sample)
    family.check_sample(ModelConfig(r.model, {.classes = outputs, .pixels = wants_pixels(r)}), sample, of_model);
}

void check_model(const Recipe& r, RuleReport& report) {
  const ModelFamily& family = find_family(r.model.family);
  ModelReport of_model(report);
  if (family.check) family.check(r.model.params, of_model);
  const std::optional<TokenInput> tokens = token_input(r.model);
  if (!tokens) return;
  check_sample(r, {DType::i32, {sequence_of(r)}}, tokens->vocab, report);
}

void check_train(const Recipe& r, RuleReport& report) {
  if ((find_schedule(r.schedule.name)->keys & kReadsMinLr) && r.schedule.min_lr > r.optimizer.lr) {
    report.fail({"schedule.min_lr", "optimizer.lr"},
                fmt::format("expected at most optimizer.lr = {}, got {}", r.optimizer.lr, r.schedule.min_lr));
  }
  if (find_optimizer(r.optimizer.name)->keys.nesterov && r.optimizer.nesterov && r.optimizer.momentum == 0) {
    report.fail({"optimizer.nesterov", "optimizer.momentum"},
                "expected optimizer.momentum above 0 with nesterov, got 0.0");
  }
  // With train.steps a run may be a short trial: the trainer warns (too_short_for).
  const int64_t swa_from = r.passes.get<AverageOptions>().swa_from;
  if (r.train.steps == 0 && swa_from > 0 && swa_from >= r.train.epochs) {
    report.fail({"train.swa_from", "train.epochs"},
                fmt::format("expected an epoch before the last of train.epochs = {}, whose end would be all that is "
                            "averaged, got {}",
                            r.train.epochs, swa_from));
  }
  if (r.train.eval_every == 0) {
    const auto needs_evaluations = [&](std::string_view key, std::string_view what) {
      report.fail({"train.eval_every", key}, fmt::format("expected at least 1 with {}, got 0", what));
    };
    if (follows_evaluations(r.schedule))
      needs_evaluations("schedule.name", fmt::format("schedule.name = \"{}\"", r.schedule.name));
    if (r.train.patience > 0) needs_evaluations("train.patience", "train.patience > 0");
  }
  for (const OptionsRow& row : pass_options())
    if (row.check) row.check(r.passes, report);
}

}  // namespace

bool takes_tokens(const Recipe& r) { return token_input(r.model).has_value(); }

Task task_of(const Recipe& r) {
  switch (label_kind_of(r)) {
    case data::LabelKind::value: return Task::regress;
    case data::LabelKind::mask: return Task::segment;
    case data::LabelKind::image: return Task::restore;
    case data::LabelKind::class_index: break;
  }
  return learns_embedding(r.train.loss) ? Task::embed : Task::classify;
}

int64_t outputs_of(const Recipe& r, int64_t classes) {
  if (const auto tokens = token_input(r.model); tokens && tokens->label_each) return tokens->vocab;
  return task_of(r) == Task::embed ? find_loss(r.train.loss.name)->outputs(r.train.loss.params) : classes;
}

void check_image_rules(const Recipe& r, const Ints& shape, RuleReport& report) {
  const Doubles& mean = r.data.normalize.mean;
  const data::AugmentConfig& augment = r.data.augment;
  if (mean.size() != 1 && static_cast<int64_t>(mean.size()) != shape[2]) {
    report.fail({"data.normalize.mean"},
                fmt::format("expected 1 number or one for each of {} channels, got {}", shape[2], mean.size()));
  }
  const int64_t side = std::min(shape[0], shape[1]);
  if (augment.crop >= side) {
    report.fail({"data.augment.crop"}, fmt::format("expected less than the image side {}, got {}", side, augment.crop));
  }
  if (augment.cutout > side) {
    report.fail({"data.augment.cutout"},
                fmt::format("expected at most the image side {}, got {}", side, augment.cutout));
  }
  if (takes_tokens(r)) return;
  const data::LabelKind target = label_kind_of(r);
  const int64_t known = target == data::LabelKind::image                         ? shape[2]
                        : target == data::LabelKind::value && !is_custom_data(r) ? 1
                                                                                 : r.data.classes;
  check_sample(r, {DType::f32, {shape[0], shape[1], shape[2]}}, outputs_of(r, known), report);
}

void check_rules(const Recipe& recipe, RuleReport& report) {
  check_data(recipe, report);
  check_model(recipe, report);
  check_train(recipe, report);
}

}  // namespace lathe
