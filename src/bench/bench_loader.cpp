#include "bench/bench_loader.h"

#include "backend/backend.h"
#include "base/stopwatch.h"
#include "data/loader.h"
#include "loop/evaluation.h"
#include "loop/trainer.h"
#include "session/state.h"

namespace lathe {
LoaderBench bench_loader(const Recipe& r, double seconds) {
  const Dataset dataset = open_dataset(r);
  CompileOptions options;
  options.eval = false;
  const Compiled c = compile(r, dataset.spec, options);
  const auto session = open_session(c);
  session->initialize(r.seed);
  Executor& e = session->executor();
  data::Loader loader(*dataset.train, c.loader, loader_slots(e, 0, c.executor.slots - 2, true));
  LoaderBench out;
  out.batch = c.steps.batch;
  out.sample_bytes = data::sample_bytes(*dataset.train);
  loader.start(0);

  // A slot keeps its bytes until it is released: the first batch serves the steps.
  const int slot = loader.next().slot;
  stage_step_inputs(e, slot, r.seed, 0, 1e-6, 1.0 / static_cast<double>(out.batch));
  const auto one = [&] {
    e.stage(0, slot);
    e.run(0, slot);
  };
  one();
  e.synchronize();  // the device is warm
  Stopwatch begin;
  int64_t steps = 0;
  for (; steps < 3 || begin.seconds() < seconds; ++steps) {
    one();
    e.synchronize();
  }
  out.step_seconds = begin.seconds() / static_cast<double>(steps);
  out.needed_per_second = static_cast<double>(out.batch) / out.step_seconds;
  loader.release(slot);

  // Batches made ahead while the steps ran would flatter the loader.
  for (int i = 0; i < c.executor.slots - 2; ++i) loader.release(loader.next().slot);
  begin = Stopwatch();
  int64_t samples = 0;
  for (; out.batches < 3 || begin.seconds() < seconds; ++out.batches) {
    const data::Batch b = loader.next();
    samples += b.count;
    loader.release(b.slot);
  }
  out.samples_per_second = static_cast<double>(samples) / begin.seconds();
  out.bytes_per_second = out.samples_per_second * static_cast<double>(out.sample_bytes);
  return out;
}

}  // namespace lathe
