#include "loop/evaluation.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/stopwatch.h"
#include "loop/step_inputs.h"
#include "passes/partition/vote.h"
#include "recipe/sources/preparation.h"
#include "rundir/progress.h"

namespace lathe {

std::vector<data::Slot> loader_slots(const Executor& e, int first, int count, bool indices) {
  std::vector<data::Slot> slots;
  for (int i = first; i < first + count; ++i) {
    data::Slot s;
    s.fields[0] = e.staging(i, "x");
    s.fields[1] = e.staging(i, "y");
    if (indices) s.indices = reinterpret_cast<int64_t*>(e.staging(i, "index"));
    slots.push_back(s);
  }
  return slots;
}

namespace {

data::LoaderConfig config(const Compiled& c, const data::Source& source) {
  data::LoaderConfig l;
  l.seed = static_cast<uint64_t>(c.recipe.seed);
  l.batch = std::min(c.eval_batch, source.size());
  l.shuffle = false;
  l.repeat = false;
  l.threads = static_cast<int>(c.recipe.data.threads);
  l.ranks = c.mesh.ranks;
  l.rank = c.mesh.rank;
  l.blocks = c.loader.blocks;
  return l;
}

}  // namespace

Evaluation::Evaluation(const Compiled& c, Executor& e, const data::Source& source, data::Split split)
    : executor_(e),
      split_(split),
      slots_(c.has("train") || c.has("accumulate") ? 2 : c.executor.slots),
      first_slot_(c.executor.slots - slots_),
      task_(c.config.task),
      batch_(c.eval_batch),
      terms_per_sample_(c.data.terms()),
      entropy_of_tokens_(task_ == Task::classify && c.data.label.shape.ndim() == 1 && evaluates_plain_loss(c.config)),
      // Columns of several units have no common one: their errors are given in deviations.
      unit_(terms_per_sample_ == 1 ? c.data.units.scale_of(0) : 1),
      whole_(c.program("eval")),
      tail_(source.size() % batch_ > 0 ? c.program(eval_tail_of(c.data, split, batch_)) : whole_),
      ahead_(c.executor.ahead),
      votes_(e.has_input(kVote)),
      loader_(source, config(c, source), loader_slots(e, first_slot_, slots_, false)),
      queue_(e, loader_, c.executor.ahead, slots_, first_slot_) {
  if (task_ == Task::segment && c.config.model.classes <= kMostMaskClasses)
    for (int64_t k = 0; k < c.config.model.classes; ++k)
      overlaps_.push_back({fmt::format("meet_{}", k), fmt::format("join_{}", k)});
}

void Evaluation::add_done() {
  while (const auto done = queue_.take()) {
    const auto metric = [&](std::string_view name) { return executor_.metric(done->run, name); };
    // Runs that are under way are completed, as many on all ranks.
    if (votes_ && !ending_ && metric(kVote) > 0) ending_ = done->step + ahead_;
    sums_.loss += metric("loss_sum");
    switch (task_) {
      case Task::classify:
      case Task::embed:
      case Task::segment: sums_.correct += metric("correct"); break;
      case Task::regress:
        sums_.errors += metric("square_sum");
        sums_.distance += metric("distance_sum");
        sums_.targets += metric("target_sum");
        sums_.squares += metric("target_square_sum");
        break;
      case Task::restore:
        sums_.errors += metric("square_sum");
        sums_.input_errors += metric("input_error_sum");
        break;
    }
    for (Overlap& o : overlaps_) {
      o.meet += metric(o.meet_name);
      o.join += metric(o.join_name);
    }
  }
}

void Evaluation::drain() {
  for (add_done(); !queue_.empty(); add_done()) queue_.make_room();
  queue_.release_all();
}

std::optional<EvalResult> Evaluation::run(const StopFlag* stop) {
  const Stopwatch start;
  EvalResult r;
  r.split = split_;
  sums_ = {};
  ending_.reset();
  for (Overlap& o : overlaps_) o.meet = o.join = 0;
  executor_.leaving().begin_step();
  loader_.start(0);
  for (int64_t i = 0; i < loader_.batches_per_epoch(); ++i) {
    queue_.free_slots();
    const data::Batch batch = loader_.next();
    const size_t program = batch.count == batch_ ? whole_ : tail_;
    stage_vote(executor_, first_slot_ + batch.slot, stop && stop->signal() != 0);
    executor_.stage(program, first_slot_ + batch.slot);
    if (queue_.full()) queue_.make_room();
    add_done();
    const bool runs = (!ending_ || i < *ending_) && queue_.submit(program, first_slot_ + batch.slot, i, {});
    queue_.release(batch.slot);
    if (!runs) {
      drain();
      return std::nullopt;
    }
    r.samples += batch.count;
  }
  drain();
  r.loss = sums_.loss;
  r.accuracy = sums_.correct;
  const auto terms = static_cast<double>(r.samples * terms_per_sample_);
  r.loss /= terms;
  r.accuracy /= terms;
  if (entropy_of_tokens_) {
    r.perplexity = std::exp(r.loss);
  } else if (task_ == Task::regress) {
    r.accuracy = std::nan("");
    r.rmse = std::sqrt(sums_.errors / terms) * unit_;
    r.mae = sums_.distance / terms * unit_;
    const double spread = sums_.squares - sums_.targets * sums_.targets / terms;
    if (spread > 0) r.r2 = 1 - sums_.errors / spread;
  } else if (task_ == Task::restore) {
    r.accuracy = std::nan("");
    r.psnr = -10 * std::log10(sums_.errors / terms);
    r.input_psnr = -10 * std::log10(sums_.input_errors / terms);
  }
  double shares = 0, present = 0;
  for (const Overlap& o : overlaps_)
    if (o.join > 0) {
      shares += o.meet / o.join;
      ++present;
    }
  if (present > 0) r.iou = shares / present;
  r.seconds = start.seconds();
  return r;
}

void write_evaluation(MetricsLog& log, int64_t step, const EvalResult& r) {
  // Names as the file has them; string literals, so that nothing is allocated.
  struct Row {
    std::string_view name;
    const char *test, *validation;
  };
  static constexpr Row kNames[] = {{"accuracy", "eval_accuracy", "validation_accuracy"},
                                   {"perplexity", "eval_perplexity", "validation_perplexity"},
                                   {"iou", "eval_iou", "validation_iou"},
                                   {"rmse", "eval_rmse", "validation_rmse"},
                                   {"mae", "eval_mae", "validation_mae"},
                                   {"r2", "eval_r2", "validation_r2"},
                                   {"psnr", "eval_psnr", "validation_psnr"},
                                   {"input_psnr", "eval_input_psnr", "validation_input_psnr"}};
  const bool test = r.split == data::Split::test;
  std::array<Metric, 2 + std::size(kNames)> metrics{{{"step", step}, {test ? "eval_loss" : "validation_loss", r.loss}}};
  size_t count = 2;
  r.each([&](std::string_view name, double value) {
    const auto* row = std::ranges::find(kNames, name, &Row::name);
    metrics[count++] = {test ? row->test : row->validation, value};
  });
  log.write(std::span(metrics).first(count));
}

void append_evaluation(fmt::memory_buffer& text, const EvalResult& r) {
  const auto to = std::back_inserter(text);
  fmt::format_to(to, "{} loss ", data::to_string(r.split));
  format_loss(to, r.loss);
  r.each([&](std::string_view name, double value) {
    fmt::format_to(to, ", {} ", name);
    format_metric(to, name, value);
  });
}

namespace {

// With another value of one of these other samples are held out: some that the net has learned from.
constexpr std::string_view kSplitKeys[] = {"seed", "data.validation", "data.train_samples", "data.source"};

}  // namespace

const data::Source& set_of_run(const std::string& run, const Recipe& r, const Dataset& data, data::Split split) {
  const data::Source* found = data.of(split);
  if (!found)
    throw UserError(fmt::format("{}: there is no {} set; {}", run, data::to_string(split),
                                split == data::Split::validation
                                    ? "a run has one that was trained with data.validation, such as 0.1"
                                    : "its data have no test samples"),
                    Exit::missing_input);
  if (split != data::Split::validation) return *found;
  for (const RecipeDifference& d : diff(load_run_recipe(run, {}), r))
    if (std::ranges::find(kSplitKeys, d.key) != std::end(kSplitKeys))
      throw UserError(fmt::format("--set {}: {} in the run, got {}: the validation set would hold samples that the net "
                                  "was trained with",
                                  d.key, d.a, d.b),
                      Exit::bad_recipe);
  return *found;
}

EvalResult evaluate(const std::string& run, const EvalOptions& options) {
  const Recipe r = load_run_recipe(run, options.sets);
  const Dataset data = open_dataset(r);
  const data::Split split = options.split.value_or(data.test ? data::Split::test : data::Split::validation);
  const data::Source& source = set_of_run(run, r, data, split);
  CompileOptions o;
  o.train = false;
  o.passes = passes_of_run(run, options.which);
  if (options.group) o.mesh = {options.group->size(), options.group->rank()};
  const Compiled c = compile(r, data.spec, o);
  std::unique_ptr<Device> device;  // else open_run() opens one
  if (options.group) {
    const DeviceName name = parse_device_name(c.recipe.device.name);
    require_device(name);
    device = find_backend(name.backend).open({name.index, static_cast<int>(r.device.threads), options.group});
  }
  const auto session = open_run(run, c, options.which, std::move(device));
  stage_rank(session->executor(), c.executor.slots, c.mesh.rank);
  EvalResult found = *Evaluation(c, session->executor(), source, split).run();
  found.warning =
      missing_classes(source, split, data.preparation ? data.preparation->names : std::vector<std::string>{});
  return found;
}

}  // namespace lathe
