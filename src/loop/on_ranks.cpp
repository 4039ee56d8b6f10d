// Training and evaluation on ranks: threads of one process (..._on_ranks), or processes of a launcher (..._in).
#include <algorithm>
#include <deque>

#include "base/thread_pool.h"
#include "comm/cores.h"
#include "comm/position.h"
#include "comm/run_ranks.h"
#include "comm/threads.h"
#include "loop/trainer.h"

namespace lathe {

namespace {

// Callbacks are the first rank's.
TrainOptions options_of(const TrainOptions& options, comm::Group& group) {
  TrainOptions o = options;
  o.group = &group;
  if (group.rank() == 0) return o;
  o.progress = nullptr;
  o.on_start = nullptr;
  o.on_step = nullptr;
  o.on_cut_short = nullptr;
  o.on_end = nullptr;
  return o;
}

// f(group) on a thread for each rank; what the first one found.
template <class F>
auto on_threads(int ranks, double timeout, F&& f) {
  comm::ThreadOptions threads;
  threads.timeout = timeout;
  std::deque<comm::Position> positions(static_cast<size_t>(ranks));  // outlive the groups
  const auto groups = comm::thread_groups(ranks, threads);
  for (size_t i = 0; i < groups.size(); ++i) groups[i]->set_position(&positions[i]);
  decltype(f(*groups[0])) first;
  comm::run_ranks(groups, [&](comm::Group& group) {
    auto found = f(group);
    if (group.rank() == 0) first = std::move(found);
  });
  return first;
}

int64_t threads_of(const Recipe& r, int ranks) {
  return r.device.threads > 0 ? r.device.threads : std::max(1, available_threads() / ranks);
}

int64_t threads_of(const Recipe& r, const comm::World& world) {
  if (r.device.threads > 0 || r.device.name != "cpu") return r.device.threads;
  return comm::threads_per_rank(comm::find_cores(), world.launch());
}

EvalOptions with_threads(EvalOptions o, int64_t threads) {
  o.sets.push_back(fmt::format("device.threads={}", threads));
  return o;
}

}  // namespace

TrainResult train_on_ranks(const Recipe& recipe, const TrainOptions& options, int ranks) {
  LATHE_USER_CHECK(!options.group, "train_on_ranks: expected no group, it makes one for each rank");
  Recipe r = recipe;
  r.device.threads = threads_of(r, ranks);
  return on_threads(ranks, r.comm.timeout, [&](comm::Group& group) { return train(r, options_of(options, group)); });
}

TrainResult train_in(comm::World& world, const Recipe& recipe, const TrainOptions& options) {
  LATHE_USER_CHECK(!options.group, "train_in: expected no group, it is the world's");
  Recipe r = recipe;
  r.device.threads = threads_of(r, world);
  TrainOptions o = options_of(options, world.group());
  o.control = &world.control();
  o.on_step = options.on_step;
  o.on_end = options.on_end;
  return comm::run_in(world, [&] { return train(r, o); });
}

EvalResult evaluate_on_ranks(const std::string& run, const EvalOptions& options, int ranks) {
  const Recipe r = load_run_recipe(run, options.sets);
  const EvalOptions o = with_threads(options, threads_of(r, ranks));
  return on_threads(ranks, r.comm.timeout, [&](comm::Group& group) {
    EvalOptions own = o;
    own.group = &group;
    return evaluate(run, own);
  });
}

EvalResult evaluate_in(comm::World& world, const std::string& run, const EvalOptions& options) {
  return comm::run_in(world, [&] {
    EvalOptions o = with_threads(options, threads_of(load_run_recipe(run, options.sets), world));
    o.group = &world.group();
    return evaluate(run, o);
  });
}

}  // namespace lathe
