#include "loop/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/process_age.h"
#include "base/stopwatch.h"
#include "compile/outside.h"
#include "loop/evaluation.h"
#include "loop/monitor.h"
#include "loop/signals.h"
#include "loop/step_account.h"
#include "loop/step_queue.h"
#include "recipe/recipe_errors.h"
#include "run/peak.h"
#include "rundir/progress.h"
#include "rundir/run_checkpoints.h"
#include "rundir/run_data.h"
#include "rundir/run_dir.h"
#include "session/state.h"
#include "workload/own_data.h"

namespace lathe {
namespace {

class Trainer {
 public:
  Trainer(const Recipe& r, const TrainOptions& o)
      : options_(o),
        progress_(stdout, o.quiet),
        monitor_(r),
        account_(
            c_, [this] { return what_is_left(); }, progress_) {
    if (o.handle_signals) signals_.emplace();
    // All that can fail without a directory comes first: a run that cannot start leaves nothing behind.
    require_device(parse_device_name(r.device.name));
    dataset_ = o.train_data ? own_dataset(r, o.train_data, o.eval_data) : open_dataset(r);
    // A device that others use, too, says what they have left of its memory.
    const DeviceName name = parse_device_name(r.device.name);
    auto device = find_backend(name.backend).open({name.index, static_cast<int>(r.device.threads)});
    CompileOptions compile_options = o.compile;
    compile_options.free_memory = device->free_memory();
    c_ = compile(r, dataset_.spec, compile_options);
    result_.outside_estimated = estimate_outside(c_, c_.data.resident_bytes);
    executor_ = std::make_unique<Executor>(c_.set, std::move(device), c_.executor);
    loader_ = std::make_unique<data::Loader>(*dataset_.train, c_.loader,
                                             loader_slots(*executor_, 0, c_.executor.slots - 2, true));
    queue_.emplace(*executor_, *loader_, c_.executor.ahead, c_.executor.slots - 2);
    if ((r.schedule.name == "plateau" || r.train.patience > 0) && !c_.has("eval"))
      throw_recipe_error(r, {"data.test_samples", "data.validation"},
                         "expected evaluation data for train.patience or schedule.name = \"plateau\", got none");
    if (c_.has("eval")) evaluation_ = std::make_unique<Evaluation>(c_, *executor_, *dataset_.eval);
    terms_per_sample_ = c_.data.terms();
    schedule_ = schedule_of(c_);
    if (options_.new_out) options_.out = io::make_new_dir(fs_, options_.out);
    files_.emplace(r, RunPlace{options_.out, options_.resume, options_.compile.passes}, progress_);
  }

  TrainResult run() {
    progress_.note(fmt::format("run directory: {}", options_.out));
    restore();
    if (step_ >= c_.schedule.total_steps || monitor_.should_stop()) return nothing_to_do();
    if (options_.on_start) options_.on_start(options_.out);
    replace_text(fs_, io::join_path(options_.out, "recipe.toml"), to_toml(c_.recipe));
    keep_run_data();
    log_.emplace(fs_, options_.out, step_);
    progress_.note(fmt::format("{}: {} training samples, {} steps of {}, {} parameters, {} planned, device {}",
                               c_.recipe.name, c_.schedule.samples, c_.schedule.total_steps,
                               c_.schedule.batch * c_.schedule.accumulate, parameter_count(),
                               format_bytes(c_.memory().total()), c_.recipe.device.name));
    result_.device_notes = executor_->device().notes();
    for (const std::string& note : result_.device_notes) progress_.note(c_.recipe.device.name + ": " + note);
    if (const Recomputed again = recomputed(c_.set.programs[0]); again.launches > 0)
      progress_.note(fmt::format("memory.budget: {} launches of a step run again, {:.2f} % more FLOP", again.launches,
                                 again.flops_percent));
    if (const int64_t wanted = eval_batch_of(c_.recipe, c_.data); evaluation_ && c_.eval_batch < wanted)
      progress_.note(
          fmt::format("memory.budget: evaluation goes in batches of {} instead of {} samples", c_.eval_batch, wanted));
    for (const std::string& what : too_short_for(c_)) progress_.note("warning: " + what);
    try {
      loop();
    } catch (const DriverError& e) {
      progress_.finish();
      cut_short();
      lost(e);
    } catch (const Error&) {
      cut_short();
      throw;
    }
    progress_.finish();
    if (result_.preempted) cut_short();
    return finish();
  }

 private:
  void keep_run_data() {
    if (!dataset_.preparation) return;
    if (!write_run_data(fs_, options_.out, {dataset_.spec, *dataset_.preparation}))
      progress_.note(
          fmt::format("warning: no {}, which would be too large: a prediction will ask for the data", kRunDataFile));
    dataset_.preparation.reset();
  }

  std::string what_is_left() {
    const auto newest = files_->newest();
    return newest ? fmt::format("the checkpoint of step {} is intact: {}", *newest, options_.out)
                  : "there is no checkpoint yet";
  }

  void cut_short() {
    if (options_.on_cut_short) options_.on_cut_short(c_);
  }

  // What the device computed since the last checkpoint is gone; files are as they were. The step is the first that the
  // host did not see the end of.
  [[noreturn]] void lost(const DriverError& e) {
    const auto newest = files_->newest();
    throw DriverError(fmt::format(
        "{}: lost in step {} of {}: {}; {}; the system's log may say more (dmesg)", c_.recipe.device.name,
        queue_->oldest().value_or(step_) + 1, c_.schedule.total_steps, e.what(),
        !newest ? "there is no checkpoint yet: start again, here or with another --device"
                : fmt::format("the checkpoint of step {} is intact: go on with --resume --out {}, here or with "
                              "another --device",
                              *newest, options_.out)));
  }

  // The checkpoint is at the end of the recipe already: its numbers are shown, no file changes.
  TrainResult nothing_to_do() {
    progress_.note(fmt::format("nothing to do: the checkpoint is at step {} of {}{}", step_, c_.schedule.total_steps,
                               monitor_.should_stop() ? ", where train.patience ended the run" : ""));
    if (evaluation_) eval_ = evaluation_->run();
    first_step_ = step_;
    account_.forget();
    result_.unchanged = true;
    return finish();
  }

  void restore() {
    const auto found = files_->restore(*executor_, c_);
    if (!found) return;
    step_ = found->manifest.step;
    const auto info = [&](const char* key) {
      const auto it = found->manifest.info.find(key);
      return it == found->manifest.info.end() ? int64_t{0} : std::strtoll(it->second.c_str(), nullptr, 10);
    };
    if (find_schedule(schedule_.name)->to_end && info("total_steps") != c_.schedule.total_steps &&
        step_ < c_.schedule.total_steps)
      progress_.note(
          fmt::format("warning: the {} schedule now ends at step {}, it ended at {} when the checkpoint was "
                      "written: the learning "
                      "rate is not that of a run to {} from the beginning",
                      schedule_.name, c_.schedule.total_steps, info("total_steps"), c_.schedule.total_steps));
    if (const auto it = found->manifest.info.find(kSecondsInfo); it != found->manifest.info.end()) {
      earlier_seconds_ = std::strtod(it->second.c_str(), nullptr);
      result_.timed_from = info(kTimedFromInfo);
    } else {
      result_.timed_from = step_;
    }
    account_.load(found->manifest.info);
    monitor_.load(found->manifest.info);
    progress_.note(fmt::format("resumed at step {} from {}", step_, found->path));
  }

  int64_t parameter_count() const {
    int64_t n = 0;
    for (const StateSpec& s : c_.state)
      if (s.kind == InputKind::param) n += s.type.numel();
    return n;
  }

  void loop() {
    const bool accumulates = c_.schedule.accumulate > 1;
    whole_ = c_.program(accumulates ? "accumulate" : "train");
    tail_ = c_.has(accumulates ? "accumulate_tail" : "train_tail")
                ? c_.program(accumulates ? "accumulate_tail" : "train_tail")
                : whole_;
    if (accumulates) update_ = c_.program("update");
    loader_->start(c_.schedule.epoch_of(step_), c_.schedule.first_batch(step_));
    first_step_ = step_;
    batch_ = take_batch(step_);
    while (step_ < c_.schedule.total_steps) {
      const Stopwatch begin;
      const DeviceCounters before = executor_->device().counters();
      run_step();
      if (step_ > first_step_) count(before);
      ++step_;
      result_.seconds += begin.seconds();
      samples_ += c_.schedule.samples_in(step_ - 1);
      after_step();
      if (const int signal = signals_ ? signals_->received() : 0; signal && step_ < c_.schedule.total_steps) {
        progress_.note(fmt::format("signal {}: checkpoint at step {}; resume with --resume", signal, step_));
        checkpoint();
        result_.preempted = true;
        return;
      }
      if (result_.stopped_early) return;
    }
  }

  void count(const DeviceCounters& before) {
    const DeviceCounters& now = executor_->device().counters();
    result_.in_steps.launches += now.launches - before.launches;
    result_.in_steps.blocking += now.blocking - before.blocking;
    result_.in_steps.pauses += now.pauses - before.pauses;
    result_.in_steps.allocations += now.allocations - before.allocations;
  }

  // The next batch, with the step's inputs in its slot, on its way to the device.
  data::Batch take_batch(int64_t step) {
    queue_->free_slots();
    const data::Batch b = loader_->next();
    const double terms = static_cast<double>(c_.schedule.samples_in(step) * terms_per_sample_);
    stage_step_inputs(*executor_, b.slot, c_.recipe.seed, step, rate_of(step), 1.0 / terms);
    stage_optional_inputs(*executor_, b.slot, c_, step);
    executor_->stage(program_of(b), b.slot);
    return b;
  }

  double rate_of(int64_t step) const {
    const double rate = learning_rate(schedule_, step), factor = monitor_.factor(step);
    return factor == 1 ? rate : std::min(rate, std::max(c_.recipe.schedule.min_lr, rate * factor));
  }

  size_t program_of(const data::Batch& b) const { return b.count == c_.schedule.batch ? whole_ : tail_; }

  // Gives one optimizer step to the device: every micro-batch, then the update.
  void run_step() {
    const int64_t count = c_.schedule.batches_in(step_);
    for (int64_t i = 0; i < count; ++i) {
      const data::Batch now = batch_;
      const bool last = i + 1 == count, more = !last || step_ + 1 < c_.schedule.total_steps;
      const auto take_next = [&] { batch_ = take_batch(last ? step_ + 1 : step_); };
      // The next batch moves to the device while this one is computed with: given before the kernels if it is there, so
      // that it is in time even when the device is as fast as the host; a batch that is not there must not hold them
      // up. The update stages inputs of its own, and the device has two slots: then the next batch comes after it.
      const bool early = more && !(last && update_) && loader_->ready();
      if (early) take_next();
      give(program_of(now), now.slot, {.loss = true, .last = last && !update_});
      if (last && update_) {
        executor_->stage(*update_, now.slot);
        give(*update_, now.slot, {.loss = false, .last = true});
      }
      queue_->give_back(now.slot);
      if (more && !early) take_next();
    }
  }

  void give(size_t program, int slot, StepQueue::Tells tells) {
    if (queue_->full()) {
      queue_->make_room();
      hear();
    }
    queue_->run(program, slot, step_, tells);
  }

  // Deals with the steps that are done, in order.
  void hear() {
    while (const auto m = queue_->next()) account_.hear(*m, rate_of(m->step), *log_);
  }

  // Waits for every step: before anything that shows, keeps or depends on the state of the run.
  void settle() {
    if (queue_->oldest()) {
      const Stopwatch wait;
      queue_->wait();
      result_.seconds += wait.seconds();
    }
    hear();
  }

  // Allocates nothing, log lines and evaluations included; a refused step and a checkpoint may.
  void after_step() {
    const bool last = step_ == c_.schedule.total_steps;
    const bool epoch_end = step_ % c_.schedule.steps_per_epoch == 0;
    const auto every = [&](int64_t epochs) {
      return epoch_end && epochs > 0 && c_.schedule.epoch_of(step_) % epochs == 0;
    };
    const CheckpointRecipe& k = c_.recipe.checkpoint;
    const bool regular = every(c_.recipe.train.eval_every);
    const bool evaluates = evaluation_ && (last || regular);
    const bool keeps = last || (k.every_steps > 0 && step_ % k.every_steps == 0) || every(k.every_epochs);
    if (evaluates || keeps || step_ == first_step_ + 1)  // kernels were compiled in the first: time counts from here
      settle();
    else
      hear();
    if (step_ == first_step_ + 1) {
      result_.start_seconds = process_age();
      result_.start_cpu_seconds = process_cpu_seconds();
    }
    const double rate = static_cast<double>(samples_) / result_.seconds;
    const double per_step = result_.seconds / static_cast<double>(step_ - first_step_);
    progress_.update({step_, c_.schedule.total_steps, account_.epoch_after(step_), account_.smooth_loss(),
                      rate_of(step_ - 1), rate, per_step * static_cast<double>(c_.schedule.total_steps - step_)});
    if (options_.on_step) options_.on_step(step_, *executor_);
    if (evaluates) evaluate_now(regular);
    if (keeps || result_.stopped_early) checkpoint();
  }

  // NaN where an evaluation has no such number: no improvement.
  double monitored(const EvalResult& r) const {
    double found = c_.recipe.train.monitor == "loss" ? r.loss : std::nan("");
    r.each([&](std::string_view name, double value) {
      if (name == c_.recipe.train.monitor) found = value;
    });
    return found;
  }

  void evaluate_now(bool regular) {
    eval_ = evaluation_->run();
    write_evaluation(*log_, step_, *eval_);
    fmt::memory_buffer text;
    fmt::format_to(std::back_inserter(text), "epoch {}: ", c_.schedule.epoch_of(step_));
    append_evaluation(text, *eval_);
    progress_.note({text.data(), text.size()});
    const double factor = monitor_.factor(step_ + 1);
    if (monitor_.hear(monitored(*eval_), step_, regular) && c_.recipe.checkpoint.best) publish(Which::best);
    if (monitor_.factor(step_ + 1) != factor)
      progress_.note(fmt::format("no better {} for {} evaluations: learning rate {:.3g}", c_.recipe.train.monitor,
                                 c_.recipe.schedule.patience, rate_of(step_ + 1)));
    if (step_ < c_.schedule.total_steps && monitor_.should_stop()) {
      progress_.note(fmt::format("no better {} for {} evaluations: the run ends; the best was at step {}",
                                 c_.recipe.train.monitor, monitor_.evaluations_without_improvement(),
                                 monitor_.best_step()));
      result_.stopped_early = true;
    }
  }

  // A refused step changed nothing, so what is saved after one is the last good state.
  void checkpoint() { publish(Which::newest); }

  void publish(Which which) {
    settle();
    std::map<std::string, std::string> info{{"total_steps", std::to_string(c_.schedule.total_steps)},
                                            {kSecondsInfo, fmt::format("{:.3f}", earlier_seconds_ + result_.seconds)},
                                            {kTimedFromInfo, std::to_string(result_.timed_from)}};
    account_.save(info);
    monitor_.save(info);
    files_->publish(which, *executor_, c_, step_, std::move(info), *log_);
  }

  double step_flops() const {
    double flops = 0;
    for (const Launch& l : c_.set.programs[whole_].launches) flops += l.flops();
    return flops * static_cast<double>(c_.schedule.accumulate);
  }

  TrainResult finish() {
    result_.steps = step_;
    result_.best_step = monitor_.best_step();
    result_.skipped = account_.skipped();
    result_.total_seconds = earlier_seconds_ + result_.seconds;
    result_.loss = account_.loss();
    result_.eval_loss = eval_ ? eval_->loss : std::numeric_limits<double>::quiet_NaN();
    result_.accuracy = eval_ ? eval_->accuracy : std::numeric_limits<double>::quiet_NaN();
    result_.evaluation = eval_;
    result_.samples_per_second = result_.seconds > 0 ? static_cast<double>(samples_) / result_.seconds : 0;
    result_.flops_per_second =
        result_.seconds > 0 ? step_flops() * static_cast<double>(step_ - first_step_) / result_.seconds : 0;
    result_.memory = c_.memory();
    result_.allocated = executor_->allocated() + loader_->scratch_bytes() + dataset_.resident_bytes;
    LATHE_CHECK(result_.allocated == result_.memory.total(), "allocated {}, planned {}", result_.allocated,
                result_.memory.total());
    result_.wait_seconds = loader_->waited_seconds();
    result_.out = options_.out;
    result_.device = c_.recipe.device.name;
    result_.resident_bytes = resident_peak();
    result_.outside_measured = measure_outside(c_);
    if (!result_.preempted && options_.measure_peak) {
      const DeviceName device = parse_device_name(c_.recipe.device.name);
      // Loaders fill the executor's memory ahead: they end before it.
      evaluation_.reset();
      queue_.reset();
      loader_.reset();
      executor_.reset();
      if (device.backend != "ref")
        result_.peak_flops = std::max(
            result_.flops_per_second,
            measure_peak(find_backend(device.backend), {device.index, static_cast<int>(c_.recipe.device.threads)})
                .flops_per_second);
    }
    return result_;
  }

  TrainOptions options_;
  io::PosixFs fs_;
  Progress progress_;
  std::optional<StopSignals> signals_;
  Monitor monitor_;
  std::optional<RunCheckpoints> files_;
  Dataset dataset_;
  Compiled c_;
  StepAccount account_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<data::Loader> loader_;
  std::optional<StepQueue> queue_;
  std::unique_ptr<Evaluation> evaluation_;
  std::optional<MetricsLog> log_;
  ScheduleRun schedule_;
  int64_t terms_per_sample_ = 1;

  size_t whole_ = 0, tail_ = 0;
  std::optional<size_t> update_;
  data::Batch batch_;
  int64_t step_ = 0, first_step_ = 0, samples_ = 0;
  double earlier_seconds_ = 0;  // of training, up to the checkpoint that this part began with
  std::optional<EvalResult> eval_;
  TrainResult result_;
};

}  // namespace

TrainResult train(const Recipe& recipe, const TrainOptions& o) {
  LATHE_USER_CHECK(o.train_data || !o.eval_data, "TrainOptions::eval_data: expected train_data with it, got none");
  Recipe r = o.train_data ? with_own_data(recipe, *o.train_data) : recipe;
  // "auto" means the run's own device where that is here: the bits go on as they were.
  if (const std::string path = io::join_path(o.out, "recipe.toml"); r.device.name == "auto" && o.resume) {
    io::PosixFs fs;
    if (io::info_at(fs, path)) {
      const std::string own = parse_recipe(read_text(fs, path), path).device.name;
      try {
        require_device(parse_device_name(own));
        r.device.name = own;
      } catch (const DeviceError&) {
        // It is gone: the choice is made anew, and the checkpoint tells that bits will differ.
      }
    }
  }
  return Trainer(r, o).run();
}

}  // namespace lathe
