#include "bench/bench_step.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "backend/backend.h"
#include "backend/host_device.h"
#include "base/philox.h"
#include "base/process_age.h"
#include "base/stopwatch.h"
#include "base/thread_pool.h"
#include "comm/cores.h"
#include "comm/measure_link.h"
#include "comm/run_ranks.h"
#include "comm/threads.h"
#include "compile/outside.h"
#include "loop/trainer.h"
#include "passes/bucket.h"
#include "passes/partition/shard_state.h"
#include "passes/techniques/gate.h"
#include "peak/peak.h"
#include "plan/plan.h"
#include "session/state.h"

namespace lathe {
namespace {

StepConfig image_config(ModelConfig model) {
  StepConfig c;
  c.model = std::move(model);
  c.optimizer = {.name = "sgd", .momentum = 0.9};
  return c;
}

StepConfig mlp_6m_config() {
  StepConfig c = image_config(ModelConfig("mlp", {{"hidden", std::vector<int64_t>{2048, 2048, 256}}}));
  c.optimizer = {.name = "adamw", .weight_decay = 0.01};
  return c;
}

StepConfig resnet_config(int64_t depth, const char* stem, int64_t classes) {
  return image_config(ModelConfig("resnet", {{"depth", depth}, {"stem", stem}}, {.classes = classes}));
}

StepConfig gpt_config(int64_t vocab, int64_t positions, int64_t width, int64_t heads, int64_t layers) {
  StepConfig c;
  c.model = ModelConfig("gpt", {{"sequence", positions}, {"width", width}, {"heads", heads}, {"layers", layers}},
                        {.classes = vocab});
  c.optimizer = {.name = "adamw", .weight_decay = 0.01};
  return c;
}

// Any bytes will do for speed, but tokens and labels must be in range.
void fill_inputs(Executor& e, const Workload& w) {
  for (const Port& p : e.set().programs[0].inputs) {
    if (p.kind != InputKind::batch) continue;
    std::byte* at = e.staging(0, p.name);
    const CounterRng rng(1, 2, 3, 4);
    if (p.type.dtype == DType::i32) {
      auto* v = reinterpret_cast<int32_t*>(at);
      for (int64_t i = 0; i < p.type.numel(); ++i)
        v[i] = static_cast<int32_t>(rng.below(static_cast<uint64_t>(i), static_cast<uint64_t>(w.config.model.classes)));
    } else if (p.type.dtype == DType::u8) {
      for (int64_t i = 0; i < p.type.numel(); ++i)
        at[i] = static_cast<std::byte>(rng.below(static_cast<uint64_t>(i), 256));
    } else if (p.name == "index") {
      auto* v = reinterpret_cast<int64_t*>(at);
      for (int64_t i = 0; i < p.type.numel(); ++i) v[i] = i;
    }
  }
  const int64_t terms = w.sample.dtype == DType::i32 ? w.sample.numel() : 1;
  stage_step_inputs(e, 0, 1, 0, 1e-3, 1.0 / static_cast<double>(w.batch * terms));
}

}  // namespace

const std::vector<Workload>& workloads() {
  static const std::vector<Workload> list{
      {"mlp",
       "784-512-512-10, batch 128, SGD with momentum",
       image_config(ModelConfig("mlp")),
       {DType::u8, {28, 28, 1}},
       128,
       200},
      {"mlp-6m",
       "784-2048-2048-256-10, batch 128, AdamW: 6.3 million parameters",
       mlp_6m_config(),
       {DType::u8, {28, 28, 1}},
       128,
       20},
      {"cnn",
       "conv32-conv64-fc128 on 28x28, batch 128, SGD with momentum",
       image_config(ModelConfig("cnn", {{"batch_norm", false}})),
       {DType::u8, {28, 28, 1}},
       128,
       40},
      {"resnet18-cifar",
       "ResNet-18 with the stem for small images, 32x32x3, batch 64, SGD with momentum",
       resnet_config(18, "small", 10),
       {DType::u8, {32, 32, 3}},
       64,
       4},
      {"resnet50",
       "ResNet-50 on 224x224x3, batch 16, SGD with momentum",
       resnet_config(50, "imagenet", 1000),
       {DType::u8, {224, 224, 3}},
       16,
       2},
      {"gpt-tiny",
       "2 layers, 128 wide, 64 tokens, batch 8, AdamW",
       gpt_config(256, 64, 128, 4, 2),
       {DType::i32, {64}},
       8,
       40},
      {"gpt-mini",
       "6 layers, 384 wide, 256 tokens, batch 8, AdamW",
       gpt_config(256, 256, 384, 6, 6),
       {DType::i32, {256}},
       8,
       4},
      {"gpt2-124m",
       "12 layers, 768 wide, 64 tokens, batch 4, AdamW",
       gpt_config(50257, 1024, 768, 12, 12),
       {DType::i32, {64}},
       4,
       2},
  };
  return list;
}

const Workload& find_workload(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Workload& w : workloads()) {
    if (w.name == name) return w;
    names.push_back(w.name);
  }
  throw UserError(fmt::format("bench step: expected one of {}, got \"{}\"", fmt::join(names, ", "), name), Exit::usage);
}

namespace {

// `group`: null where there is one rank.
StepBench bench_rank(const Workload& w, const StepBenchOptions& o, comm::Group* group) {
  SessionOptions options{.device = o.device, .threads = o.threads, .budget = o.budget, .seed = 1, .group = group};
  options.options.set(GateOptions{});  // as recipes have it
  options.options.set(ShardOptions{o.shard});
  if (group && group->size() > 1) {  // as runs do
    const comm::LinkRates rates = comm::measure_link(*group);
    group->set_flow(comm::flow_of(rates));
    options.options.set(BucketOptions{.bytes = {bucket_bytes({rates.latency, rates.bandwidth}, group->size())}});
  }
  options.passes.verify = false;
  options.executor.snapshot = false;
  Session session(train_step(w.config, w.sample, w.batch), options);
  Executor& e = session.executor();
  fill_inputs(e, w);
  const auto one = [&] {
    e.stage(0, 0);
    e.run(0, 0);
  };
  StepBench out;
  out.start_to_step1_s = process_age();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  out.start_system_s = static_cast<double>(usage.ru_stime.tv_sec) + 1e-6 * static_cast<double>(usage.ru_stime.tv_usec);
  one();
  e.synchronize();
  out.first_step_s = process_age() - out.start_to_step1_s;
  one();
  e.synchronize();
  out.ms_per_step = 1e30;
  comm::Collectives* collectives = group ? &host_device(e.device()).collectives() : nullptr;
  const int64_t sent_before = collectives ? collectives->sent_bytes() : 0;
  for (int block = 0; block < 3; ++block) {
    const Stopwatch begin;
    for (int i = 0; i < w.steps; ++i) one();
    e.synchronize();
    out.ms_per_step = std::min(out.ms_per_step, 1e3 * begin.seconds() / w.steps);
  }
  if (collectives) out.sent_bytes = static_cast<double>(collectives->sent_bytes() - sent_before) / (3.0 * w.steps);
  double computed_flops = 0;
  for (const Launch& l : e.set().programs[0].launches) {
    out.gflop += l.cost.flops / 1e9;
    computed_flops += l.flops();
  }
  out.gflops = out.gflop / (out.ms_per_step / 1e3);
  out.arena_bytes = e.set().arena_bytes;
  out.recomputed = recomputed(e.set().programs[0]);
  out.peak_rss_mb = static_cast<double>(resident_peak()) / (1 << 20);
  if (o.profile) {
    std::vector<double> best = e.profile(0, 0);
    for (int i = 0; i < 4; ++i) {
      const auto again = e.profile(0, 0);
      for (size_t k = 0; k < best.size(); ++k) best[k] = std::min(best[k], again[k]);
    }
    for (size_t k = 0; k < best.size(); ++k) {
      const Launch& l = e.set().programs[0].launches[k];
      out.launches.push_back(
          {std::string(l.candidate.name), std::string(l.node.op->name()), l.node.origin.str(), best[k], l.cost});
      out.launches.back().cost.flops = l.flops();
    }
  }
  // A busy moment may have been chosen for the peak: nothing is faster than it.
  const double computed = computed_flops / (out.ms_per_step / 1e3);
  const DeviceName device = parse_device_name(o.device);
  double peak =
      std::max(computed, measure_peak(find_backend(device.backend), {device.index, o.threads}).flops_per_second);
  for (const auto& l : out.launches)
    if (l.seconds > 0) peak = std::max(peak, l.cost.flops / l.seconds);
  out.percent_of_peak = 100 * computed / peak;
  return out;
}

}  // namespace

StepBench bench_step(const Workload& w, const StepBenchOptions& options) {
  if (options.ranks == 1) return bench_rank(w, options, nullptr);
  LATHE_USER_CHECK(!options.profile, "bench step: launches are timed one after the other, on one rank alone");
  StepBenchOptions each = options;
  if (each.threads == 0) each.threads = std::max(1, available_threads() / options.ranks);
  const auto groups = comm::thread_groups(options.ranks);
  StepBench first;
  comm::run_ranks(groups, [&](comm::Group& group) {
    const StepBench b = bench_rank(w, each, &group);
    if (group.rank() == 0) first = b;
  });
  return first;
}

StepBench bench_step_in(comm::World& world, const Workload& w, StepBenchOptions options) {
  LATHE_USER_CHECK(options.ranks == 1 && !options.profile, "bench step: {} has started {} ranks; expected no --{}",
                   world.launch().launcher, world.launch().size, options.profile ? "profile" : "ranks");
  if (options.threads == 0) options.threads = comm::threads_per_rank(comm::find_cores(), world.launch());
  return comm::run_in(world, [&] { return bench_rank(w, options, &world.group()); });
}

}  // namespace lathe
