#include "train/evaluation.h"

#include "base/stopwatch.h"

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

data::LoaderConfig config(const Compiled& c) {
  data::LoaderConfig l;
  l.seed = static_cast<uint64_t>(c.recipe.seed);
  l.batch = c.eval_batch();
  l.shuffle = false;
  l.repeat = false;
  l.threads = static_cast<int>(c.recipe.data.threads);
  return l;
}

}  // namespace

Evaluation::Evaluation(const Compiled& c, Executor& e, const data::Source& source)
    : executor_(e),
      first_slot_(c.executor.slots - 2),
      batch_(c.eval_batch()),
      terms_per_sample_(c.data.sample.dtype == DType::i32 ? c.data.sample.numel() : 1),
      whole_(c.program("eval")),
      tail_(c.has("eval_tail") ? c.program("eval_tail") : whole_),
      loader_(source, config(c), loader_slots(e, first_slot_, 2, false)) {}

EvalResult Evaluation::run() {
  const Stopwatch start;
  EvalResult r;
  loader_.start(0);
  for (int64_t i = 0; i < loader_.batches_per_epoch(); ++i) {
    const data::Batch batch = loader_.next();
    const size_t program = batch.count == batch_ ? whole_ : tail_;
    executor_.stage(program, first_slot_ + batch.slot);
    executor_.run(program, first_slot_ + batch.slot);
    r.loss += executor_.metric("loss_sum");
    r.accuracy += executor_.metric("correct");
    r.samples += batch.count;
    loader_.release(batch.slot);
  }
  const auto terms = static_cast<double>(r.samples * terms_per_sample_);
  r.loss /= terms;
  r.accuracy /= terms;
  r.seconds = start.seconds();
  return r;
}

}  // namespace lathe
