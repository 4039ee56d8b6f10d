#include "loop/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/process_age.h"
#include "base/stopwatch.h"
#include "compile/outside.h"
#include "loop/communication_time.h"
#include "loop/monitor.h"
#include "loop/ranks/fingerprint.h"
#include "loop/ranks/replicas.h"
#include "loop/run_evaluations.h"
#include "loop/run_record.h"
#include "loop/signals.h"
#include "loop/start_notes.h"
#include "loop/step_account.h"
#include "loop/step_queue.h"
#include "peak/peak.h"
#include "rundir/progress.h"
#include "workload/custom_data.h"

namespace lathe {
namespace {

class Trainer {
 public:
  Trainer(const Recipe& r, const TrainOptions& o)
      : options_(o),
        progress_(o.progress ? *o.progress : no_progress_),
        monitor_(r),
        account_(
            c_, [this] { return record_->what_is_left(); }, progress_) {
    // All that can fail without a directory comes first: a run that cannot start leaves nothing behind.
    require_device(parse_device_name(r.device.name));
    dataset_ = o.train_data ? custom_dataset(r, o.train_data, o.validation_data, o.eval_data) : open_dataset(r);
    result_.warnings =
        missing_classes(dataset_, dataset_.preparation ? dataset_.preparation->names : std::vector<std::string>{});
    // A device that others use, too, says what they have left of its memory.
    const DeviceName name = parse_device_name(r.device.name);
    auto device = find_backend(name.backend).open({name.index, static_cast<int>(r.device.threads), o.group});
    CompileOptions compile_options = o.group ? rank_options(o.compile, r, *o.group, o.resume ? o.out : "") : o.compile;
    compile_options.free_memory = device->free_memory();
    c_ = compile(r, dataset_.spec, compile_options);
    result_.outside_estimated = estimate_outside(c_, c_.data.resident_bytes);
    session_ = open_session(c_, std::move(device));
    executor_ = &session_->executor();
    communication_.watch(o.group, *executor_);
    stage_rank(*executor_, c_.executor.slots, c_.mesh.rank);
    loader_ = std::make_unique<data::Loader>(*dataset_.train, c_.loader,
                                             loader_slots(*executor_, 0, c_.executor.slots - 2, true));
    queue_.emplace(*executor_, *loader_, c_.executor.ahead, c_.executor.slots - 2);
    evaluations_.emplace(c_, *executor_, dataset_);
    options_.alike.push_back({"--resume", o.resume ? "yes" : "no"});
    if (o.control) check_fingerprint(*o.control, c_, dataset_, o.compile.passes, options_.alike);
    terms_per_sample_ = c_.data.terms();
    schedule_ = schedule_of(c_);
    record_.emplace(r, RunPlace{options_.out, options_.resume, options_.compile.passes}, options_.new_out, progress_,
                    options_.group);
    replicas_.emplace(*executor_, c_.state, o.group, o.control, r.parallel.check_replicas);
    if (o.control) o.control->set_stack_folder(record_->out());
  }

  TrainResult run() {
    progress_.note(fmt::format("run directory: {}", record_->out()));
    const bool begins = !restore();
    const bool untrained = begins && c_.steps.total_steps == 0;
    if (!untrained && !evaluation_due_ && (step_ >= c_.steps.total_steps || monitor_.should_stop()))
      return nothing_to_do();
    if (options_.on_start) options_.on_start(record_->out(), step_);
    record_->begin(c_, dataset_, step_, !evaluation_due_);
    result_.device_notes = executor_->device().notes();
    note_start(c_, result_.device_notes, progress_);
    for (const std::string& what : result_.warnings) progress_.note("warning: " + what);
    if (!untrained)
      for (const std::string& what : too_short_for(c_)) progress_.note("warning: " + what);
    try {
      if (untrained)
        leave_untrained();
      else
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
    // A signal that came too late to stop the training: what is left is kept short.
    hurried_ = signal() != 0;
    signals_.reset();
    if (hurried_) cut_short();
    return finish();
  }

 private:
  void cut_short() {
    if (options_.on_cut_short) options_.on_cut_short(c_);
  }

  // What the device computed since the last checkpoint is gone; files are as they were. The step is the first that the
  // host did not see the end of.
  [[noreturn]] void lost(const DriverError& e) {
    const auto newest = record_->newest();
    throw DriverError(fmt::format(
        "{}: lost in step {} of {}: {}; {}; the system's log may say more (dmesg)", c_.recipe.device.name,
        queue_->oldest().value_or(step_) + 1, c_.steps.total_steps, e.what(),
        !newest ? "there is no checkpoint yet: start again, here or with another --device"
                : fmt::format("the checkpoint of step {} is intact: continue with --resume --out {}, here or with "
                              "another --device",
                              *newest, record_->out())));
  }

  // The checkpoint is at the end of the recipe already: its numbers are shown, no file changes.
  TrainResult nothing_to_do() {
    progress_.note(fmt::format("nothing to do: the checkpoint is at step {} of {}{}", step_, c_.steps.total_steps,
                               monitor_.should_stop() ? ", where train.patience ended the run" : ""));
    if (evaluations_->any()) {
      const auto [followed, test] = *evaluations_->run({.last = true});
      (followed.split == data::Split::validation ? result_.validation : result_.test) = followed;
      if (test) result_.test = test;
    }
    first_step_ = step_;
    account_.forget();
    result_.unchanged = true;
    return finish();
  }

  // Whether there was a checkpoint.
  bool restore() {
    const auto found = record_->restore(*session_, c_);
    if (!found) return false;
    step_ = found->manifest.step;
    const auto info = [&](const char* key) {
      const auto it = found->manifest.info.find(key);
      return it == found->manifest.info.end() ? int64_t{0} : std::strtoll(it->second.c_str(), nullptr, 10);
    };
    if (find_schedule(schedule_.name)->to_end && info("total_steps") != c_.steps.total_steps &&
        step_ < c_.steps.total_steps)
      progress_.note(
          fmt::format("warning: the {} schedule now ends at step {}, it ended at {} when the checkpoint was "
                      "written: the learning "
                      "rate is not that of a run to {} from the beginning",
                      schedule_.name, c_.steps.total_steps, info("total_steps"), c_.steps.total_steps));
    if (const auto it = found->manifest.info.find(kSecondsInfo); it != found->manifest.info.end()) {
      earlier_seconds_ = std::strtod(it->second.c_str(), nullptr);
      result_.timed_from = info(kTimedFromInfo);
    } else {
      result_.timed_from = step_;
    }
    evaluation_due_ = evaluations_->any() && info(kEvaluationDueInfo) != 0;
    account_.load(found->manifest.info);
    monitor_.load(found->manifest.info);
    progress_.note(fmt::format("resumed at step {} from {}", step_, found->path));
    if (dataset_.held_out > 0) {
      const auto before = found->manifest.info.find(kHeldOutInfo);
      if (before == found->manifest.info.end() || before->second != held_out_text())
        progress_.note(
            "warning: other samples are held out for validation than when the checkpoint was written: the data have "
            "changed, or an older version wrote it; the net may have learned from some of the validation set");
    }
    return true;
  }

  std::string held_out_text() const { return fmt::format("{:016x}", dataset_.held_out); }

  // A run of no steps: the state as it begins, evaluated and kept.
  void leave_untrained() {
    account_.forget();
    if (evaluations_->any()) evaluate_now();
    checkpoint();
  }

  void loop() {
    const bool accumulates = c_.steps.accumulate > 1;
    whole_ = c_.program(accumulates ? "accumulate" : "train");
    tail_ = c_.has(accumulates ? "accumulate_tail" : "train_tail")
                ? c_.program(accumulates ? "accumulate_tail" : "train_tail")
                : whole_;
    if (accumulates) update_ = c_.program("update");
    if (options_.control)
      options_.control->position().set_per_step(c_.steps.accumulate * collectives_in(c_.set.programs[whole_]) +
                                                (update_ ? collectives_in(c_.set.programs[*update_]) : 0));
    first_step_ = step_;
    if (evaluation_due_) {
      progress_.note(fmt::format("the evaluation of step {}, which a signal ended", step_));
      evaluate_and_keep();
      if (step_ == c_.steps.total_steps || result_.stopped_early) return;
    }
    loader_->start(c_.steps.epoch_of(step_), c_.steps.first_batch(step_));
    batch_ = take_batch(step_);
    while (step_ < c_.steps.total_steps) {
      const Stopwatch begin;
      const DeviceCounters before = executor_->device().counters();
      if (!run_step()) return stop_in_step();
      communication_.end_step();
      if (step_ > first_step_) result_.in_steps.add(executor_->device().counters(), before);
      ++step_;
      result_.seconds += begin.seconds();
      samples_ += c_.steps.samples_in(step_ - 1);
      after_step();
      if (must_stop() && (step_ < c_.steps.total_steps || evaluation_due_)) return stop_here();
      if (result_.stopped_early) return;
    }
  }

  // Ranks end together: as soon as all know that one of them asks for it.
  bool must_stop() const { return options_.group ? stop_after_ && step_ >= *stop_after_ : signal() != 0; }

  void stop_here() {
    const std::string reason = signal() ? fmt::format("signal {}", signal()) : "a signal to another rank";
    progress_.note(fmt::format("{}: checkpoint at step {}; resume with --resume", reason, step_));
    checkpoint();
    result_.preempted = true;
  }

  // A signal came in the middle of a step, which was left.
  void stop_in_step() {
    if (!executor_->leaving().spoiled()) return stop_here();
    flush();
    result_.warnings.push_back(
        fmt::format("signal {}: step {} was left half done, it takes too long; steps since the last checkpoint are "
                    "lost, --resume does them again: {}",
                    signal(), step_ + 1, record_->what_is_left()));
    progress_.note("warning: " + result_.warnings.back());
    result_.preempted = true;
  }

  int signal() const { return signals_ ? signals_->received() : 0; }

  // The next batch, with the step's inputs in its slot, on its way to the device.
  data::Batch take_batch(int64_t step) {
    queue_->free_slots();
    const data::Batch b = loader_->next();
    const double terms = static_cast<double>(c_.steps.samples_in(step) * terms_per_sample_);
    stage_step_inputs(*executor_, b.slot, c_.recipe.seed, step, rate_of(step), 1.0 / terms);
    stage_optional_inputs(*executor_, b.slot, c_, step);
    stage_vote(*executor_, b.slot, signal() != 0);
    executor_->stage(program_of(b), b.slot);
    return b;
  }

  double rate_of(int64_t step) const {
    const double rate = learning_rate(schedule_, step), factor = monitor_.factor(step);
    return factor == 1 ? rate : std::min(rate, std::max(c_.recipe.schedule.min_lr, rate * factor));
  }

  size_t program_of(const data::Batch& b) const { return b.count == c_.steps.batch ? whole_ : tail_; }

  // Gives one optimizer step to the device: every micro-batch, then the update. False: it was left (run/leaving.h).
  bool run_step() {
    executor_->leaving().begin_step();
    communication_.begin_step(step_ + 1);
    const int64_t count = c_.steps.batches_in(step_);
    for (int64_t i = 0; i < count; ++i) {
      const data::Batch now = batch_;
      const bool last = i + 1 == count, more = !last || step_ + 1 < c_.steps.total_steps;
      const auto take_next = [&] { batch_ = take_batch(last ? step_ + 1 : step_); };
      // The next batch moves to the device while this one is computed with: given before the kernels if it is there, so
      // that it is in time even when the device is as fast as the host; a batch that is not there must not hold them
      // up. The update stages inputs of its own, and the device has two slots: then the next batch comes after it.
      const bool early = more && !(last && update_) && loader_->ready();
      if (early) take_next();
      if (!submit(program_of(now), now.slot, {.loss = true, .last = last && !update_})) return false;
      if (last && update_) {
        executor_->stage(*update_, now.slot);
        if (!submit(*update_, now.slot, {.loss = false, .last = true})) return false;
      }
      queue_->release(now.slot);
      if (more && !early) take_next();
    }
    return true;
  }

  bool submit(size_t program, int slot, StepQueue::Part part) {
    if (queue_->full()) {
      queue_->make_room();
      record_finished();
    }
    return queue_->submit(program, slot, step_, part);
  }

  // Records the steps that are done, in order.
  void record_finished() {
    while (const auto m = queue_->next()) {
      // Runs that are under way are completed, as many on all ranks.
      if (m->stop && !stop_after_) stop_after_ = m->step + c_.executor.ahead;
      account_.record(*m, rate_of(m->step), record_->log());
    }
  }

  // Waits for every step: before anything that shows, keeps or depends on the state of the run.
  void flush() {
    if (queue_->oldest()) {
      const Stopwatch wait;
      queue_->wait();
      result_.seconds += wait.seconds();
    }
    record_finished();
  }

  bool is_epoch_end(int64_t every) const {
    return every > 0 && step_ % c_.steps.steps_per_epoch == 0 && c_.steps.epoch_of(step_) % every == 0;
  }
  bool evaluates() const {
    return evaluations_->any() && (step_ == c_.steps.total_steps || is_epoch_end(c_.recipe.train.eval_every));
  }
  bool keeps() const {
    const CheckpointRecipe& k = c_.recipe.checkpoint;
    return step_ == c_.steps.total_steps || (k.every_steps > 0 && step_ % k.every_steps == 0) ||
           is_epoch_end(k.every_epochs);
  }

  // Allocates nothing, log lines and evaluations included; a refused step and a checkpoint may.
  void after_step() {
    // Kernels were compiled in the first step: time counts from here.
    if (evaluates() || keeps() || step_ == first_step_ + 1)
      flush();
    else
      record_finished();
    if (step_ == first_step_ + 1) {
      // From here on there is something that a checkpoint would keep.
      if (options_.handle_signals) signals_.emplace();
      // A rank that left a step by itself would leave the others in it.
      if (signals_ && !options_.group) executor_->leaving().watch(&signals_->flag());
      result_.start_seconds = process_age();
      result_.start_cpu_seconds = process_cpu_seconds();
    }
    const double rate = static_cast<double>(samples_) / result_.seconds;
    const double per_step = result_.seconds / static_cast<double>(step_ - first_step_);
    progress_.update({step_, c_.steps.total_steps, account_.epoch_after(step_), account_.smooth_loss(),
                      rate_of(step_ - 1), rate, per_step * static_cast<double>(c_.steps.total_steps - step_)});
    if (options_.on_step) options_.on_step(step_, *executor_);
    replicas_->after_step(step_);
    evaluate_and_keep();
  }

  // What is due after a step. A signal ends an evaluation: it is done again where the run continues.
  void evaluate_and_keep() {
    const bool again = std::exchange(evaluation_due_, false);
    if (evaluates()) {
      evaluation_due_ = !evaluate_now();
      if (evaluation_due_) {
        stop_after_ = step_;
        return;
      }
    }
    if (again || keeps() || result_.stopped_early) checkpoint();
  }

  // False: a signal came first; then nothing is reported or changed.
  bool evaluate_now() {
    const bool last = step_ == c_.steps.total_steps, regular = is_epoch_end(c_.recipe.train.eval_every);
    const StopFlag* const stop = signals_ ? &signals_->flag() : nullptr;
    const auto found = evaluations_->run({last, regular, step_, &monitor_, stop});
    if (!found) return false;
    report(found->followed);
    if (found->followed.split == data::Split::validation) judge(found->followed, regular);
    if (found->test) report(*found->test);
    return true;
  }

  void report(const EvalResult& found) {
    (found.split == data::Split::validation ? result_.validation : result_.test) = found;
    if (record_->log()) write_evaluation(*record_->log(), step_, found);
    fmt::memory_buffer text;
    fmt::format_to(std::back_inserter(text), "epoch {}: ", c_.steps.epoch_of(step_));
    append_evaluation(text, found);
    progress_.note({text.data(), text.size()});
  }

  // What validation data say of the run's course.
  void judge(const EvalResult& found, bool regular) {
    const double factor = monitor_.factor(step_ + 1);
    if (monitor_.update(evaluations_->monitored(found), step_, regular) && c_.recipe.checkpoint.best)
      publish(Which::best);
    if (monitor_.factor(step_ + 1) != factor)
      progress_.note(fmt::format("no better validation {} for {} evaluations: learning rate {:.3g}",
                                 c_.recipe.train.monitor, c_.recipe.schedule.patience, rate_of(step_ + 1)));
    if (step_ < c_.steps.total_steps && monitor_.should_stop()) {
      progress_.note(fmt::format("no better validation {} for {} evaluations: the run ends; the best was at step {}",
                                 c_.recipe.train.monitor, monitor_.evaluations_without_improvement(),
                                 monitor_.best_step()));
      result_.stopped_early = true;
    }
  }

  // A refused step changed nothing, so what is saved after one is the last good state.
  void checkpoint() { publish(Which::newest); }

  void publish(Which which) {
    flush();
    replicas_->compare(step_);
    std::map<std::string, std::string> info{{"total_steps", std::to_string(c_.steps.total_steps)},
                                            {kSecondsInfo, fmt::format("{:.3f}", earlier_seconds_ + result_.seconds)},
                                            {kTimedFromInfo, std::to_string(result_.timed_from)}};
    if (evaluation_due_) info[kEvaluationDueInfo] = "1";
    account_.save(info);
    monitor_.save(info);
    if (dataset_.held_out > 0) info[kHeldOutInfo] = held_out_text();
    try {
      record_->publish(which, *session_, c_, step_, std::move(info));
    } catch (const UserError& e) {
      if (options_.control) options_.control->fail_alike(e.what());
      throw;
    }
  }

  TrainResult finish() {
    result_.steps = step_;
    result_.best_step = monitor_.best_step();
    result_.skipped = account_.skipped();
    result_.total_seconds = earlier_seconds_ + result_.seconds;
    result_.loss = account_.loss();
    result_.eval_loss = result_.test ? result_.test->loss : std::numeric_limits<double>::quiet_NaN();
    result_.accuracy = result_.test ? result_.test->accuracy : std::numeric_limits<double>::quiet_NaN();
    result_.samples_per_second = result_.seconds > 0 ? static_cast<double>(samples_) / result_.seconds : 0;
    result_.ranks = c_.mesh.ranks;
    const double runs = static_cast<double>((step_ - first_step_) * c_.steps.accumulate);
    result_.flops_per_second = result_.seconds > 0 ? runs * flops_in(c_.set.programs[whole_]) / result_.seconds : 0;
    result_.memory = c_.memory();
    result_.allocated = executor_->allocated() + loader_->scratch_bytes() + dataset_.resident_bytes;
    LATHE_CHECK(result_.allocated == result_.memory.total(), "allocated {}, planned {}", result_.allocated,
                result_.memory.total());
    result_.wait_seconds = loader_->waited_seconds();
    result_.communication_seconds = communication_.seconds();
    result_.exposed_seconds = communication_.exposed();
    result_.resident_bytes = resident_peak();
    result_.outside_measured = measure_outside(c_);
    if (options_.group) sum_up_ranks(*options_.group, step_ - first_step_, !options_.control, result_);
    result_.out = record_->out();
    result_.device = c_.recipe.device.name;
    // A run that was at its end already has one.
    const auto keep_summary = [&] {
      if (!result_.unchanged) record_->summarize(result_);
    };
    keep_summary();
    if (options_.on_end) options_.on_end(c_);
    if (!hurried_ && options_.measure_peak && record_->writes()) {
      const DeviceName device = parse_device_name(c_.recipe.device.name);
      // Loaders fill the executor's memory ahead: they end before it.
      evaluations_.reset();
      queue_.reset();
      loader_.reset();
      session_.reset();
      const auto threads = static_cast<int>(c_.recipe.device.threads * c_.mesh.ranks);
      if (device.backend != "ref") {
        const double peak = measure_peak(find_backend(device.backend), {device.index, threads}).flops_per_second;
        result_.peak_flops = std::max(result_.flops_per_second, peak);
      }
      keep_summary();
    }
    return result_;
  }

  TrainOptions options_;
  ProgressSink no_progress_;
  ProgressSink& progress_;
  std::optional<StopSignals> signals_;
  Monitor monitor_;
  std::optional<RunRecord> record_;
  Dataset dataset_;
  Compiled c_;
  StepAccount account_;
  std::unique_ptr<Session> session_;
  Executor* executor_ = nullptr;  // the session's
  CommunicationTime communication_;
  std::unique_ptr<data::Loader> loader_;
  std::optional<StepQueue> queue_;
  std::optional<RunEvaluations> evaluations_;
  std::optional<Replicas> replicas_;
  ScheduleRun schedule_;
  int64_t terms_per_sample_ = 1;

  size_t whole_ = 0, tail_ = 0;
  std::optional<size_t> update_;
  data::Batch batch_;
  int64_t step_ = 0, first_step_ = 0, samples_ = 0;
  std::optional<int64_t> stop_after_;  // steps, because a rank asked for it
  bool evaluation_due_ = false;        // of the step that was just done
  bool hurried_ = false;               // by a signal
  double earlier_seconds_ = 0;         // of training, up to the checkpoint that this part began with
  TrainResult result_;
};

}  // namespace

TrainResult train(const Recipe& recipe, const TrainOptions& o) {
  for (const auto& [name, given] : {std::pair{"validation_data", &o.validation_data}, {"eval_data", &o.eval_data}})
    LATHE_USER_CHECK(o.train_data || !*given, "TrainOptions::{}: expected train_data with it, got none", name);
  Recipe r = o.train_data ? with_custom_data(recipe, *o.train_data) : recipe;
  check_selection(r, r.data.validation > 0 || o.validation_data);
  if (r.device.name == "auto" && o.resume) r.device.name = device_of_run(o.out).value_or("auto");
  return Trainer(r, o).run();
}

}  // namespace lathe
