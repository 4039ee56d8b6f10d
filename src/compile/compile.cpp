#include "compile/compile.h"

#include <algorithm>

#include "backend/backend.h"
#include "base/checked.h"
#include "base/format_bytes.h"
#include "base/stopwatch.h"
#include "nn/step/loss.h"
#include "passes/bucket.h"
#include "passes/partition/blocks.h"
#include "passes/techniques/accumulate.h"
#include "plan/arena.h"
#include "plan/plan.h"
#include "recipe/recipe_errors.h"
#include "recipe/recipe_keys.h"
#include "session/state_parts.h"

namespace lathe {
namespace {

// Names of the Programs of evaluation.
constexpr const char *kEval = "eval", *kEvalTail = "eval_tail", *kValidationTail = "validation_tail";
bool is_evaluation(const Graph& g) { return g.name == kEval || g.name == kEvalTail || g.name == kValidationTail; }

}  // namespace

int64_t TrainingSteps::batches_in(int64_t step) const { return std::min(accumulate, batches - first_batch(step)); }

int64_t TrainingSteps::samples_in(int64_t step) const {
  const int64_t first = first_batch(step) * batch;
  return std::min(samples - first, batches_in(step) * batch);
}

TrainingSteps training_steps(const Recipe& r, int64_t samples) {
  TrainingSteps s;
  if (r.train.batch_size > samples)
    throw_recipe_error(
        r, {"train.batch_size", "data.train_samples"},
        fmt::format("expected at most {} (the number of training samples), got {}", samples, r.train.batch_size));
  s.batch = r.train.batch_size;
  s.accumulate = r.passes.get<AccumulateOptions>().batches;
  s.samples = samples;
  s.batches = ceil_div(samples, s.batch);
  s.steps_per_epoch = ceil_div(s.batches, s.accumulate);
  s.total_steps = r.train.steps > 0 ? r.train.steps : checked_mul(r.train.epochs, s.steps_per_epoch, "train.epochs");
  return s;
}

StepConfig step_config(const Recipe& r, const DataSpec& data) {
  StepConfig c;
  c.task = task_of(r);
  c.model = ModelConfig(r.model, {.classes = outputs_of(r, data.classes),
                                  .pixels = c.task == Task::segment || c.task == Task::restore,
                                  .mean = r.data.normalize.mean,
                                  .std = r.data.normalize.std});
  c.optimizer = r.optimizer;
  c.loss = r.train.loss;
  return c;
}

PassContext pass_context(const Recipe& r, const Target& target, const Mesh& mesh) { return {target, r.passes, mesh}; }

data::LoaderConfig loader_config(const Recipe& r) {
  data::LoaderConfig l;
  l.seed = static_cast<uint64_t>(r.seed);
  l.batch = r.train.batch_size;
  l.augment = r.data.augment;
  l.threads = static_cast<int>(r.data.threads);
  return l;
}

int64_t eval_batch_of(const Recipe& r, const DataSpec& data) {
  const int64_t wanted = r.train.eval_batch > 0 ? r.train.eval_batch : r.train.batch_size;
  return std::min(wanted, std::max(data.validation, data.test));
}

const char* eval_tail_of(const DataSpec& data, data::Split split, int64_t batch) {
  const bool own = split == data::Split::validation && data.validation % batch != data.test % batch;
  return own ? kValidationTail : kEvalTail;
}

int64_t Compiled::parameters() const {
  int64_t n = 0;
  for (const StateSpec& s : state)
    if (s.kind == InputKind::param) n += s.whole_type().numel();
  return n;
}

RunMemory Compiled::memory() const {
  RunMemory m = run_memory(set, target, executor);
  if (steps.batch > 0) m.loader = data::loader_scratch_bytes(loader, data.sample);
  m.data = data.resident_bytes;
  return m;
}

size_t Compiled::program(std::string_view name) const {
  const Program* p = set.find(name);
  LATHE_CHECK(p, "no Program {}", name);
  return static_cast<size_t>(p - set.programs.data());
}

namespace {

void check_groups(const Recipe& r, const StepConfig& c, const TensorType& sample) {
  if (c.optimizer.groups.empty()) return;
  const std::vector<std::string> names = parameter_names(c, sample);
  if (const auto useless = find_useless_pattern(c.optimizer.groups, names))
    throw_recipe_error(r, {"optimizer.groups"}, fmt::format("group {}: {}", useless->group, useless->reason));
  const auto is_frozen = [&](const std::string& name) {
    const ParamGroup* group = find_group(c.optimizer.groups, name);
    return group && group->frozen;
  };
  if (std::ranges::all_of(names, is_frozen))
    throw_recipe_error(r, {"optimizer.groups"}, "every parameter is frozen; nothing is left to train");
}

}  // namespace

StepSet build_steps(const Recipe& r, const DataSpec& data, const CompileOptions& o) {
  const StepConfig c = step_config(r, data);
  if (takes_tokens(r) != (data.sample.dtype == DType::i32))
    throw_recipe_error(r, {"model.family", "data.source"},
                       fmt::format("\"{}\" takes {}, data.source \"{}\" gives {}", c.model.family,
                                   takes_tokens(r) ? "tokens" : "images", r.data.source.name, to_string(data.sample)));
  check_groups(r, c, data.sample);
  StepSet set;
  const auto add = [&](StepSet s, const char* name) {
    s.graphs[0].name = name;
    merge(set, std::move(s));
  };
  if (o.train) {
    const TrainingSteps s = training_steps(r, data.train);
    add(train_step(c, data.sample, s.batch), "train");
    if (const int64_t tail = s.samples % s.batch; tail > 0) add(train_step(c, data.sample, tail), "train_tail");
  }
  if (o.eval && eval_batch_of(r, data) > 0) {
    const int64_t batch = eval_batch_of(r, data);
    add(eval_step(c, data.sample, batch), kEval);
    if (data.test % batch > 0) add(eval_step(c, data.sample, data.test % batch), kEvalTail);
    if (const int64_t tail = data.validation % batch; tail > 0 && tail != data.test % batch)
      add(eval_step(c, data.sample, tail), kValidationTail);
  }
  if (o.predict > 0) add(predict_step(c, data.sample, o.predict), "predict");
  return set;
}

namespace {

PlanOptions plan_options(const Recipe& r) {
  PlanOptions o;
  o.in_flight = r.passes.get<BucketOptions>().in_flight.bytes;
  return o;
}

// Bytes that must fit into the device's memory: all, where that is the host's.
int64_t device_bytes(const Target& target, const RunMemory& m) {
  return target.host_memory ? m.total() : m.arena + m.device_staging;
}

void check_fits(const Compiled& c, int64_t free_memory) {
  const RunMemory m = c.memory();
  const auto text = [&] {
    return fmt::format(
        "the run allocates {} (arena {}, staging {}, metrics {}, communication {}, snapshot {}, loader {}, data set "
        "{})",
        m.total(), m.arena, m.host_staging + m.device_staging, m.metrics, m.communication, m.snapshot, m.loader,
        m.data);
  };
  if (const int64_t budget = c.recipe.memory.budget.bytes; budget > 0 && m.total() > budget)
    throw DeviceError(fmt::format("memory.budget: {} bytes are available, {}", budget, text()));
  if (device_bytes(c.target, m) > c.target.memory)
    throw DeviceError(fmt::format("{} has {} bytes of memory, the run needs {} there (arena {}, staging {})",
                                  c.target.name, c.target.memory, device_bytes(c.target, m), m.arena,
                                  device_bytes(c.target, m) - m.arena));
  if (free_memory > 0 && device_bytes(c.target, m) > free_memory)
    throw DeviceError(
        fmt::format("{}: {} of its {} bytes of memory are free, the run needs {} there (arena {}, staging "
                    "{})",
                    c.recipe.device.name, free_memory, c.target.memory, device_bytes(c.target, m), m.arena,
                    device_bytes(c.target, m) - m.arena));
}

// The same graphs, but evaluation in batches of `samples`.
std::vector<Graph> with_eval_batch(const Compiled& c, std::vector<Graph> graphs, const CompileOptions& o,
                                   int64_t samples) {
  std::erase_if(graphs, is_evaluation);
  CompileOptions eval_only = o;
  eval_only.train = false;
  eval_only.predict = 0;
  Recipe r = c.recipe;
  r.train.eval_batch = samples;
  StepSet eval = run_pipeline(build_steps(r, c.data, eval_only), pass_context(r, c.target, c.mesh), o.passes);
  for (Graph& g : eval.graphs) graphs.push_back(std::move(g));
  return graphs;
}

// `c` is planned without a budget and allocates more than there is. Evaluation gives way first: it needs no large
// batches, and cannot be made smaller otherwise, for it keeps nothing that could be computed again. Then training steps
// compute results again.
void fit_budget(Compiled& c, std::vector<Graph> graphs, const Target& roomy, const Backend& backend,
                const CompileOptions& o) {
  const int64_t budget = c.recipe.memory.budget.bytes, before = c.memory().total();
  // The accuracy of embeddings is that within a batch: another size would give other numbers.
  if (o.eval && c.eval_batch > 1 && !learns_embedding(c.recipe.train.loss)) {
    const auto scratch = [&](bool evaluation_alone) {
      int64_t most = 0;
      for (const Program& p : c.set.programs)
        if (!evaluation_alone || is_evaluation(p.graph)) most = std::max(most, p.memory.scratch);
      return most;
    };
    // Staging has room for a batch of training anyway.
    c.eval_batch = std::max<int64_t>(1, std::min(c.eval_batch, c.recipe.train.batch_size));
    for (;; c.eval_batch = ceil_div(c.eval_batch, 2)) {
      graphs = with_eval_batch(c, std::move(graphs), o, c.eval_batch);
      c.set = plan(graphs, roomy, backend.kernels(), plan_options(c.recipe));
      if (c.eval_batch == 1 || c.memory().total() - scratch(false) + scratch(true) <= budget) break;
    }
  }
  const int64_t total = c.memory().total();
  if (total <= budget || !o.recompute) return;
  // Only the arena depends on the plan.
  const int64_t rest = total - c.set.arena_bytes;
  PlanOptions options = plan_options(c.recipe);
  options.budget = std::max<int64_t>(1, budget - rest);
  try {
    c.set = plan(std::move(graphs), c.target, backend.kernels(), options);
  } catch (const BudgetError& e) {
    const int64_t smallest = e.smallest() + rest;
    std::string text = fmt::format(
        "memory.budget: {} bytes ({}) are available, the run allocates {} ({}); the smallest budget that can be met is "
        "{} ({}), {} ({}) of them outside of the arena",
        budget, format_bytes(budget), before, format_bytes(before), smallest, format_bytes(smallest), rest,
        format_bytes(rest));
    if (budget > rest) text += fmt::format("; {}", e.what());  // what stands in the way in the arena
    throw DeviceError(text);
  }
}

// With the size of buckets, where they are used, that the plan is made with: a repetition takes the same.
void settle_buckets(Recipe& r, const Target& target, const CompileOptions& o) {
  BucketOptions buckets = r.passes.get<BucketOptions>();
  if (o.mesh.ranks == 1 || buckets.bytes.bytes > 0 || r.passes.get<SameBitsOptions>().used() > 0) return;
  buckets.bytes.bytes = o.bucket > 0 ? o.bucket : bucket_bytes(target.link, o.mesh.ranks);
  r.passes.set(buckets);
}

Compiled compile_or_refuse(const Recipe& r, const DataSpec& data, const CompileOptions& o) {
  const DeviceName device = parse_device_name(r.device.name);
  const Backend& backend = find_backend(o.spec ? o.spec->backend : device.backend);
  Compiled out;
  out.recipe = r;
  if (r.device.name == "auto") {
    out.recipe.device.name = auto_device();
    if (out.recipe.device.name != "cpu") out.recipe.device.threads = 0;  // means something for the cpu alone
  }
  out.data = data;
  out.config = step_config(r, data);
  out.target = o.spec ? target_of_spec(*o.spec) : backend.target({device.index, static_cast<int>(r.device.threads)});
  out.mesh = o.mesh;
  if (o.mesh.ranks > 1 && backend.kernels().candidates("all_reduce").empty())
    throw UserError(
        fmt::format("device.name: {} cannot be one of several ranks yet; use \"cpu\", or one rank", r.device.name),
        Exit::bad_recipe);
  if (o.link) out.target.link = *o.link;
  settle_buckets(out.recipe, out.target, o);
  if (o.device_memory > 0) out.target.memory = o.device_memory;
  out.target.largest_allocation = std::min(out.target.largest_allocation, out.target.memory);
  // A driver that must be started to be asked is no part of planning.
  const Stopwatch start;
  if (o.train) out.steps = training_steps(r, data.train);
  // One more slot than batches prepared ahead: the one that is being computed with; two for evaluation.
  out.executor.slots = static_cast<int>(r.data.prefetch) + 1 + 2;
  out.executor.snapshot = o.train;
  if (!out.target.host_memory) out.executor.ahead = kRunsAhead;
  out.loader = loader_config(r);
  out.loader.ranks = o.mesh.ranks;
  out.loader.rank = o.mesh.rank;
  out.loader.blocks = r.passes.get<SameBitsOptions>().used();
  out.eval_batch = eval_batch_of(r, data);
  if (o.eval && out.eval_batch > 0 && learns_embedding(r.train.loss)) {
    const auto leaves_one = [&](int64_t batch) { return data.test % batch == 1 || data.validation % batch == 1; };
    int64_t better = out.eval_batch;
    while (leaves_one(better) && better <= std::max(data.validation, data.test)) ++better;
    LATHE_USER_CHECK(better == out.eval_batch,
                     "train.eval_batch: {} leaves a single one of {} {} samples for the last batch, which has no "
                     "neighbour there to be compared with; {}",
                     out.eval_batch, data.test % out.eval_batch == 1 ? data.test : data.validation,
                     data.test % out.eval_batch == 1 ? "test" : "validation",
                     leaves_one(better) ? "a set needs at least 2 samples" : fmt::format("{} does not", better));
  }
  StepSet set =
      run_pipeline(build_steps(r, data, o), pass_context(out.recipe, out.target, o.mesh), o.passes, &out.passes);
  out.state = std::move(set.state);
  out.executor.largest_whole = largest_whole(out.state);
  std::vector<Graph> graphs = std::move(set.graphs);
  const int64_t budget = r.memory.budget.bytes;
  Target roomy = out.target;
  if (budget > 0) roomy.memory = Target().memory;
  out.set = plan(budget > 0 ? graphs : std::move(graphs), roomy, backend.kernels(), plan_options(r));
  if (budget > 0 && out.memory().total() > budget) fit_budget(out, std::move(graphs), roomy, backend, o);
  check_fits(out, o.free_memory);
  out.seconds = start.seconds();
  return out;
}

// The largest value of a batch key below `too_large` with which the recipe fits, by planning again; 0: none. `last` is
// the reason why the smallest one tried did not.
template <class Set>
int64_t largest_fitting(const Recipe& recipe, const DataSpec& data, const CompileOptions& o, int64_t too_large,
                        std::string& last, Set&& set) {
  int64_t fits = 0;
  while (too_large - fits > std::max<int64_t>(1, fits / 16)) {
    const int64_t middle = (fits + too_large) / 2;
    Recipe r = recipe;
    set(r, middle);
    try {
      compile_or_refuse(r, data, o);
      fits = middle;
    } catch (const Error& e) {
      if (e.exit_code() != Exit::os_error) throw;
      last = e.what();
      too_large = middle;
    }
  }
  return fits;
}

// Which batch would fit: that of evaluation alone, if it is the one that does not, else that of training.
// `why` the recipe itself does not.
std::string fitting_batch(const Recipe& r, const DataSpec& data, const CompileOptions& o, const std::string& why) {
  std::string last;
  if (const int64_t eval = eval_batch_of(r, data); eval > 1) {
    const int64_t fits = largest_fitting(r, data, o, eval, last, [](Recipe& c, int64_t n) { c.train.eval_batch = n; });
    if (fits > 0) return fmt::format("train.eval_batch = {} fits", fits);
  }
  const int64_t batch = r.train.batch_size;
  const int64_t fits = largest_fitting(r, data, o, batch, last, [&](Recipe& c, int64_t n) {
    c.train.batch_size = n;
    c.train.eval_batch = std::min(eval_batch_of(r, data), n);
  });
  if (fits == 0)
    return last == why || last.empty() ? "no batch is small enough"
                                       : fmt::format("no batch is small enough: with train.batch_size = 1, {}", last);
  const int64_t parts = ceil_div(batch, fits), accumulate = r.passes.get<AccumulateOptions>().batches;
  std::string text = fmt::format("train.batch_size = {0} fits (with train.eval_batch of at most {0})", fits);
  if (batch % parts == 0)
    text += fmt::format("; train.batch_size = {} with train.accumulate = {} keeps {} samples in a step", batch / parts,
                        checked_mul(accumulate, parts, "train.accumulate"), batch * accumulate);
  return text;
}

}  // namespace

Compiled compile(const Recipe& r, const DataSpec& data, const CompileOptions& o) {
  if (o.mesh.rank > 0 && r.memory.budget.bytes > 0) {
    // Evaluation goes in batches of one size on all ranks: that which fits the first one, whose parts are the largest.
    CompileOptions first = o;
    first.mesh.rank = 0;
    Recipe same = r;
    same.train.eval_batch = compile(r, data, first).eval_batch;
    return compile_or_refuse(same, data, o);
  }
  try {
    return compile_or_refuse(r, data, o);
  } catch (const Error& e) {
    if (e.exit_code() != Exit::os_error || !o.train) throw;
    CompileOptions plain = o;
    plain.recompute = false;  // quick, and what fits without fits with it
    throw DeviceError(fmt::format("{}\n  what fits: {}", e.what(), fitting_batch(r, data, plain, e.what())));
  }
}

std::unique_ptr<Session> open_session(const Compiled& c, std::unique_ptr<Device> device) {
  if (!device) {
    const DeviceName name = parse_device_name(c.recipe.device.name);
    require_device(name);
    device = find_backend(name.backend).open({name.index, static_cast<int>(c.recipe.device.threads)});
  }
  return std::make_unique<Session>(c.state, c.set, std::move(device), c.executor);
}

}  // namespace lathe
