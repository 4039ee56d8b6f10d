// The key table: the keys that are members of sections, and what a key means for a recipe.
#include "recipe/recipe_keys.h"

#include <algorithm>
#include <cctype>
#include <mutex>

#include "backend/backend.h"
#include "nn/families/model.h"
#include "nn/optimizers/rules.h"
#include "nn/schedule.h"
#include "nn/step/loss.h"
#include "passes/pass.h"
#include "recipe/eval_metrics.h"
#include "recipe/sources/source.h"

namespace lathe {
namespace {

constexpr double kMaxCount = 1e12;  // keeps products of two counts within 64 bits

constexpr std::string_view kVerify[] = {"full", "size"};
constexpr std::string_view kOnError[] = {"fail", "warn"};

bool is_name(std::string_view text) {
  return text.size() <= 100 && (text.empty() || text[0] != '.') && std::all_of(text.begin(), text.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
         });
}

using allow::above, allow::below, allow::list, allow::range;
Allowed count(double min) { return range(min, kMaxCount); }
Allowed one_of(std::span<const std::string_view> words) { return allow::one_of({words.begin(), words.end()}); }

// The path of a key is the path of its member.
#define KEY(member) #member, [](Recipe & r) -> FieldPtr { return &r.member; }
constexpr bool kStable = true, kFree = false;
constexpr KeyEffect kWhat = KeyEffect::numbers, kHow = KeyEffect::how, kMeaning = KeyEffect::meaning;

constexpr KeyUse kAlways{};
constexpr KeyUse kOnCpu{[](const Recipe& r) { return r.device.name == "cpu" || r.device.name == "auto"; },
                        "device = \"cpu\" or \"auto\""};
constexpr KeyUse kFromFiles{[](const Recipe& r) { return facts_of(r).reads_path; }, "data read from files"};
bool has_images(const Recipe& r) { return facts_of(r).images; }
bool has_text(const Recipe& r) { return is_text(facts_of(r)); }
bool has_target(const Recipe& r, data::LabelKinds targets) { return targets.has(label_kind_of(r)); }
bool has_classes(const Recipe& r) { return has_target(r, {data::LabelKind::class_index, data::LabelKind::mask}); }
constexpr KeyUse kImages{has_images, "images"};
// Of a mask or an image to predict each pixel would have to move with that of the input.
constexpr KeyUse kAugmented{
    [](const Recipe& r) {
      return has_images(r) && has_target(r, {data::LabelKind::class_index, data::LabelKind::value});
    },
    "images with data.target = \"class\" or \"value\""};
constexpr KeyUse kLabelled{[](const Recipe& r) { return !has_text(r); }, "data other than text"};
bool has_custom_values(const Recipe& r) { return is_custom_data(r) && label_kind_of(r) == data::LabelKind::value; }
constexpr KeyUse kCounted{[](const Recipe& r) { return (!has_text(r) && has_classes(r)) || has_custom_values(r); },
                          "data other than text with data.target = \"class\" or \"mask\""};
constexpr KeyUse kNoise{[](const Recipe& r) {
                          const data::LabelKind target = label_kind_of(r);
                          return (target == data::LabelKind::image && !is_custom_data(r)) ||
                                 (target == data::LabelKind::mask && facts_of(r).noisy_masks);
                        },
                        {},
                        [] {
                          return "data.target = \"image\", or \"mask\" of " +
                                 choice_text("data.source",
                                             source_names([](const SourceFacts& f) { return f.noisy_masks; }));
                        }};
// `section.name = "a", "b" or "c"`, of the rows for which `reads` is true.
template <class Rows, class F>
std::string names_text(std::string_view key, const Rows& rows, F&& reads) {
  std::vector<std::string_view> names;
  for (const auto& row : rows)
    if (reads(row)) names.push_back(row.name);
  return choice_text(key, names);
}
// An unknown name is an error of its own.
template <auto Member>
constexpr KeyUse kOfOptimizer{[](const Recipe& r) {
                                const OptimizerRule* rule = find_optimizer(r.optimizer.name);
                                return !rule || (rule->keys.*Member).has_value();
                              },
                              {},
                              [] {
                                return names_text("optimizer.name", kOptimizerRules, [](const OptimizerRule& rule) {
                                  return (rule.keys.*Member).has_value();
                                });
                              }};
template <unsigned Key>
constexpr KeyUse kOfSchedule{[](const Recipe& r) {
                               const ScheduleRule* rule = find_schedule(r.schedule.name);
                               return !rule || (rule->keys & Key) != 0;
                             },
                             {},
                             [] {
                               return names_text("schedule.name", kScheduleRules,
                                                 [](const ScheduleRule& rule) { return (rule.keys & Key) != 0; });
                             }};
constexpr KeyUse kMonitored{
    [](const Recipe& r) { return r.train.patience > 0 || r.checkpoint.best || follows_evaluations(r.schedule); },
    {},
    [] {
      return "train.patience > 0, checkpoint.best = true or " +
             names_text("schedule.name", kScheduleRules, [](const ScheduleRule& rule) { return rule.by_evaluations; });
    }};
constexpr KeyUse kByEpochs{[](const Recipe& r) { return r.train.steps == 0; }, "train.steps = 0"};

const RecipeKey kKeys[] = {
    {KEY(name),
     kFree,
     kHow,
     kAlways,
     {.matches = is_name, .pattern = "at most 100 letters, digits, '_', '-', '.', the first no '.'"},
     "name of the run; empty: the name of the recipe file"},
    {KEY(seed), kStable, kWhat, kAlways, range(0, 2147483647), "everything random follows from it"},

    {KEY(device.name),
     kStable,
     kHow,
     kAlways,
     {.matches = is_device_name,
      .pattern = "\"auto\", \"cpu\", \"ref\", \"opencl\", \"opencl:N\", \"cuda\" or \"cuda:N\""},
     "where to compute; auto: a card, else the cpu; `device = \"cpu\"` is the short form"},
    {KEY(device.threads), kStable, kHow, kOnCpu, range(0, 1024),
     "compute threads of the cpu device; 0: all that the process may use"},

    {"data.source",
     [](Recipe& r) -> FieldPtr { return &r.data.source.name; },
     kStable,
     kWhat,
     kAlways,
     {},
     "where samples come from",
     &key_choices()[0]},
    {KEY(data.path), kStable, kHow, kFromFiles, short_text("a path of at most 4096 bytes"),
     "folder of the IDX, npy or PNG files, or the csv, npz or text file; empty: the installed fashion_mnist, or "
     "generated text"},
    {KEY(data.target), kFree, kMeaning, kLabelled, one_of(data::kLabelKindNames),
     "what is to be predicted: a class, a number, the class of each pixel, or the image without noise"},
    {KEY(data.noise), kFree, kWhat, kNoise, range(0, 255), "deviation of the noise on images, of 255"},
    {KEY(data.classes), kFree, kMeaning, kCounted, range(1, 1000000),
     "number of labels; arrays: or of numbers per sample"},
    {KEY(data.train_samples), kFree, kWhat, kAlways, count(0),
     "train on the first n samples; 0: all (synthetic: 4096)"},
    {KEY(data.test_samples), kFree, kWhat, kAlways, count(0), "test on the first n samples; 0: all (synthetic: 1024)"},
    {KEY(data.validation), kFree, kWhat, kAlways, below(0, 1),
     "part of the training samples that is held out for validation, of each class alike; which ones follows from the "
     "seed"},
    {KEY(data.threads), kFree, kHow, kAlways, range(1, 256), "loader threads"},
    {KEY(data.prefetch), kFree, kHow, kAlways, range(1, 64), "batches prepared ahead, each in a staging buffer"},
    {KEY(data.augment.flip), kFree, kWhat, kAugmented, {}, "mirror every second training image left to right"},
    {KEY(data.augment.crop), kFree, kWhat, kAugmented, range(0, 4096),
     "shift by up to so many pixels in each direction"},
    {KEY(data.augment.rotate), kFree, kWhat, kAugmented, range(0, 180), "rotate by up to so many degrees, either way"},
    {KEY(data.augment.cutout), kFree, kWhat, kAugmented, range(0, 4096), "side of a square of zeros, in pixels"},
    {KEY(data.normalize.mean), kFree, kWhat, kImages, list(range(-1e6, 1e6), 1, 1024),
     "subtracted from pixels scaled to [0, 1]; one number, or one per channel"},
    {KEY(data.normalize.std), kFree, kWhat, kImages, list(above(0, 1e6), 1, 1024),
     "divides them after that; one, or one per channel"},

    {KEY(model.family), kStable, kWhat, kAlways, {}, "kind of network", &key_choices()[1]},

    {KEY(optimizer.name), kStable, kWhat, kAlways, one_of(kOptimizerNames), "update rule"},
    {KEY(optimizer.lr), kStable, kWhat, kAlways, above(0, 1e3), "peak learning rate"},
    {KEY(optimizer.momentum), kFree, kWhat, kOfOptimizer<&OptimizerKeys::momentum>, below(0, 1),
     "momentum; unless written the optimizer's own, as for the keys below (docs/training.md)"},
    {KEY(optimizer.nesterov), kFree, kWhat, kOfOptimizer<&OptimizerKeys::nesterov>, {}, "Nesterov's form of momentum"},
    {KEY(optimizer.beta1), kFree, kWhat, kOfOptimizer<&OptimizerKeys::beta1>, below(0, 1),
     "decay of the mean of gradients"},
    {KEY(optimizer.beta2), kFree, kWhat, kOfOptimizer<&OptimizerKeys::beta2>, below(0, 1),
     "decay of the mean square; lion: of the mean"},
    {KEY(optimizer.eps), kFree, kWhat, kOfOptimizer<&OptimizerKeys::eps>, range(1e-37, 1),
     "added to the root of the mean square"},
    {KEY(optimizer.centered),
     kFree,
     kWhat,
     kOfOptimizer<&OptimizerKeys::centered>,
     {},
     "rmsprop: divide by the deviation, not the root of the mean square"},
    {KEY(optimizer.decay_rate), kFree, kWhat, kOfOptimizer<&OptimizerKeys::decay_rate>, above(0, 10),
     "adafactor: mean squares of step t decay by 1 - t^-decay_rate"},
    {KEY(optimizer.trust), kFree, kWhat, kOfOptimizer<&OptimizerKeys::trust>, range(1e-37, 1e3),
     "lars: size of a step of a matrix, of the matrix's norm"},
    {KEY(optimizer.weight_decay), kFree, kWhat, kAlways, range(0, 1e3),
     "decay of the weights; part of the gradient or apart from it, as the optimizer is; not on biases and norms"},
    {KEY(optimizer.groups), kFree, kWhat, kAlways, allow::tables(group_tables, 1000),
     "settings of parameters by name: `match` (a pattern or a list, with * and ?), `lr_scale`, `weight_decay`, "
     "`frozen`; "
     "the first group that matches holds"},

    {KEY(schedule.name), kFree, kWhat, kAlways, one_of(kScheduleNames), "course of the learning rate"},
    {KEY(schedule.warmup_steps), kFree, kWhat, kOfSchedule<kReadsWarmup>, count(0),
     "steps of linear rise to optimizer.lr"},
    {KEY(schedule.step_epochs), kFree, kWhat, kOfSchedule<kReadsStepEpochs>, range(1, 1e6),
     "epochs in which the rate falls by gamma"},
    {KEY(schedule.gamma), kFree, kWhat, kOfSchedule<kReadsGamma>, above(0, 1), "factor of a fall"},
    {KEY(schedule.min_lr), kFree, kWhat, kOfSchedule<kReadsMinLr>, range(0, 1e3),
     "learning rate at the end; plateau: the lowest"},
    {KEY(schedule.power), kFree, kWhat, kOfSchedule<kReadsPower>, above(0, 100),
     "polynomial: power of the part of the run that is left"},
    {KEY(schedule.start), kFree, kWhat, kOfSchedule<kReadsCycle>, above(0, 1),
     "one_cycle: first rate, of optimizer.lr"},
    {KEY(schedule.rise), kFree, kWhat, kOfSchedule<kReadsCycle>, range(0, 1), "one_cycle: part of the run that rises"},
    {KEY(schedule.restart_epochs), kFree, kWhat, kOfSchedule<kReadsRestarts>, range(1, 1e6),
     "cosine_restarts: epochs of the first cycle"},
    {KEY(schedule.restart_factor), kFree, kWhat, kOfSchedule<kReadsRestarts>, range(1, 100),
     "cosine_restarts: each cycle is so many times as long as the one before"},
    {KEY(schedule.decay), kFree, kWhat, kOfSchedule<kReadsDecay>, above(0, 1),
     "warmup_stable_decay: part of the run that falls"},
    {KEY(schedule.patience), kFree, kWhat, kOfSchedule<kReadsPatience>, range(1, 1e6),
     "plateau: evaluations without improvement before a fall"},

    {KEY(train.epochs), kStable, kHow, kByEpochs, range(0, 1e6),
     "passes over the training samples; 0: none, the first checkpoint is all"},
    {KEY(train.steps), kStable, kHow, kAlways, count(0), "stop after so many updates; 0: by epochs"},
    {KEY(train.batch_size), kStable, kWhat, kAlways, range(1, 1 << 24),
     "samples per batch; an update sees batch_size * accumulate"},
    {"train.loss",
     [](Recipe& r) -> FieldPtr { return &r.train.loss.name; },
     kFree,
     kMeaning,
     kAlways,
     {},
     "what training makes small: of classes cross_entropy (auto), focal, bce or kl, or triplet or contrastive for an "
     "embedding; of numbers and pixels mse (auto), l1 or huber; of several numbers cosine",
     &key_choices()[2]},
    {KEY(train.log_every), kFree, kHow, kAlways, count(1), "steps between two lines of the log"},
    {KEY(train.eval_every), kFree, kHow, kAlways, range(0, 1e6),
     "epochs between two evaluations, on the validation set (else the test set); 0: only at the end"},
    {KEY(train.eval_batch), kFree, kHow, kAlways, range(0, 1 << 24),
     "samples per evaluation batch; 0: train.batch_size"},
    {KEY(train.monitor), kFree, kHow, kMonitored, one_of(kEvalMetricNames),
     "what is to improve, on the validation set, for patience, plateau and the best checkpoint; which there are is a "
     "matter of data.target"},
    {KEY(train.min_delta), kFree, kHow, kMonitored, range(0, 1e6), "smallest improvement that counts"},
    {KEY(train.patience), kFree, kHow, kAlways, range(0, 1e6),
     "evaluations on the validation set without improvement that end the run; 0: off"},

    {KEY(checkpoint.every_steps), kFree, kHow, kAlways, count(0), "steps between two checkpoints; 0: by epochs"},
    {KEY(checkpoint.every_epochs), kFree, kHow, kAlways, range(0, 1e6),
     "epochs between two checkpoints; 0: only at the end"},
    {KEY(checkpoint.keep_last), kFree, kHow, kAlways, range(1, 1e6), "checkpoints kept"},
    {KEY(checkpoint.best),
     kFree,
     kHow,
     kAlways,
     {},
     "keep the weights of the best evaluation on the validation set too, in RUN/best, for `--best`"},
    {KEY(checkpoint.verify), kFree, kHow, kAlways, one_of(kVerify), "what resume compares: hashes, or sizes only"},
    {KEY(checkpoint.on_error), kFree, kHow, kAlways, one_of(kOnError),
     "a checkpoint that cannot be written ends the run, or warns"},

    {KEY(memory.budget),
     kStable,
     kHow,
     kAlways,
     {},
     "most bytes that a run may allocate, like \"512MiB\": arena, staging, snapshot, data; activations that do not fit "
     "are "
     "computed again (`lathe plan --curve`); \"0\": what the device has, and nothing is computed again"},

    {KEY(comm.timeout), kStable, kHow, kAlways, range(0.5, 86400),
     "seconds that a rank waits for another before the run ends and names it; longer than its part of a checkpoint "
     "takes to write"},

    {KEY(parallel.check_replicas), kFree, kHow, kAlways, count(0),
     "steps after which ranks compare the state that each of them has whole, as they do before every checkpoint; 0: "
     "never"},
};
#undef KEY

}  // namespace

const RecipeKeys& section_keys() {
  static std::mutex mutex;
  static RecipeKeys keys;
  static std::optional<size_t> options;  // that were there when the list was made
  const std::lock_guard lock(mutex);
  if (const size_t now = pass_options().size(); options != now) {
    RecipeKeys rows;
    for (const RecipeKey& row : kKeys) rows.push_back(&row);
    keys = with_pass_keys(std::move(rows));
    options = now;
  }
  return keys;
}

const RecipeKey* find_section_key(std::string_view path) {
  const RecipeKeys& keys = section_keys();
  const auto found = std::ranges::find(keys, path, &RecipeKey::path);
  return found == keys.end() ? nullptr : *found;
}

bool is_used(const RecipeKey& key, const Recipe& r) {
  if (!key.field) return !key.use.used || key.use.used(r);
  if (!key.choice) return r.passes.is_used(*key.schema, *key.field);
  return key.choice->params(const_cast<Recipe&>(r)).is_used(*key.field) &&
         (!key.choice->used || key.choice->used(r, *key.field));
}

void reset_unused(Recipe& recipe) {
  Recipe defaults;
  for (const RecipeKey* key : recipe_keys(recipe)) {
    if (is_used(*key, recipe)) continue;
    if (key->is_setting())
      key->choice->params(recipe).reset(*key->field);
    else if (key->field)
      recipe.passes.reset(*key->schema, *key->field);
    else
      std::visit([&](auto* field) { *field = *std::get<decltype(field)>(key->member(defaults)); }, key->member(recipe));
  }
}

std::string needs_text(const RecipeKey& key) {
  if (key.is_setting()) return std::string(key.field->needs.empty() ? key.choice->with : key.field->needs);
  if (key.field) return std::string(key.field->needs);
  return key.use.needs ? key.use.needs() : std::string(key.use.with);
}

void fill_defaults(Recipe& r, const std::function<bool(std::string_view)>& written) {
  const OptimizerRule* rule = find_optimizer(r.optimizer.name);
  if (!rule) return;
  for_each_key(rule->keys, r.optimizer, [&](std::string_view key, auto& field, const auto& value) {
    if (value && !written(fmt::format("optimizer.{}", key))) field = *value;
  });
}

bool is_recipe_section(std::string_view path) {
  return std::ranges::any_of(section_keys(), [&](const RecipeKey* key) {
    return key->path.starts_with(path) && key->path.substr(path.size()).starts_with('.');
  });
}

}  // namespace lathe
