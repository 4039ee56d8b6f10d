#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace lathe::cli {

void add_bench_op(CLI::App& bench, int& exit);
void add_tune_device(CLI::App& bench);

namespace {

using Json = nlohmann::ordered_json;

void print_profile(const StepBench& b) {
  std::vector<const LaunchTime*> order;
  std::map<std::string_view, double> kernels;
  double total = 0;
  for (const LaunchTime& l : b.launches) {
    order.push_back(&l);
    kernels[l.kernel] += l.seconds;
    total += l.seconds;
  }
  std::vector<std::pair<double, std::string_view>> shares;
  for (const auto& [kernel, seconds] : kernels) shares.push_back({seconds, kernel});
  std::ranges::sort(shares, std::greater<>());
  fmt::print("\n  {:>8} {:>6}  {}\n", "ms", "%", "all of a kernel");
  for (const auto& [seconds, kernel] : shares)
    fmt::print("  {:8.3f} {:5.1f}%  {}\n", seconds * 1e3, 100 * seconds / total, kernel);
  std::ranges::sort(order, [](const LaunchTime* x, const LaunchTime* y) { return x->seconds > y->seconds; });
  fmt::print("\n  {:>8} {:>6}  {:>9} {:>7}  {:<24} {}\n", "ms", "%", "GFLOP/s", "GB/s", "kernel", "origin");
  for (size_t i = 0; i < order.size() && i < 40; ++i) {
    const LaunchTime& l = *order[i];
    fmt::print("  {:8.3f} {:5.1f}%  {:9.1f} {:7.1f}  {:<24} {}\n", l.seconds * 1e3, 100 * l.seconds / total,
               l.cost.flops / l.seconds / 1e9, (l.cost.bytes_read + l.cost.bytes_written) / l.seconds / 1e9, l.kernel,
               l.origin);
  }
}

void add_step(CLI::App& bench) {
  struct Options {
    std::string workload, device = "cpu", budget;
    int threads = 0, ranks = 1, shard = 0;
    bool json = false, profile = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd = bench.add_subcommand("step", "Time of one training step of a fixed workload");
  cmd->add_option("WORKLOAD", o->workload, "mlp, mlp-6m, cnn, resnet18-cifar, resnet50, gpt-tiny, gpt-mini, gpt2-124m")
      ->required();
  add_device_option(*cmd, o->device, "default: cpu");
  cmd->add_option("--threads", o->threads, "cpu threads of each rank; 0: all")->check(whole_number(0, 1024));
  CLI::Option* ranks =
      cmd->add_option("--ranks", o->ranks,
                      "Ranks that divide the batch, threads of this process; default: 1. Those of a launcher (mpirun, "
                      "srun) divide it without this option")
          ->check(whole_number(1, 1024));
  cmd->add_option("--shard", o->shard, "What of the state ranks divide among them: parallel.shard; default: 0, nothing")
      ->check(whole_number(0, 3));
  cmd->add_option("--budget", o->budget,
                  "Most bytes of arena, like 500MiB: activations that do not fit are computed again");
  cmd->add_flag("--profile", o->profile, "Time of each launch")->excludes(ranks);
  cmd->add_flag("--json", o->json, "Print the result as JSON");
  cmd->footer("Example: lathe bench step cnn --json; lathe bench step resnet18-cifar --ranks 2 --threads 1");
  cmd->callback([o] {
    const StepBenchOptions options{.device = o->device,
                                   .threads = o->threads,
                                   .ranks = o->ranks,
                                   .shard = o->shard,
                                   .profile = o->profile,
                                   .budget = o->budget.empty() ? 0 : parse_size_option("--budget", o->budget)};
    const Workload& workload = find_workload(o->workload);
    constexpr double kTimeout = 60;  // seconds that a rank of a launcher waits for another one
    const std::unique_ptr<comm::World> world = comm::find_world(kTimeout);
    const StepBench b = world ? bench_step_in(*world, workload, options) : bench_step(workload, options);
    if (world && world->launch().rank != 0) return;
    const int count = world ? world->launch().size : o->ranks;
    if (o->json) {
      Json out{{"workload", o->workload},
               {"device", o->device},
               {"ranks", count},
               {"ms_per_step", b.ms_per_step},
               {"sent_bytes", b.sent_bytes},
               {"gflop", b.gflop},
               {"gflops", b.gflops},
               {"percent_of_peak", b.percent_of_peak},
               {"arena_bytes", b.arena_bytes},
               {"run_again", b.recomputed.launches},
               {"more_flops_percent", b.recomputed.flops_percent},
               {"peak_rss_mb", b.peak_rss_mb},
               {"start_to_step1_s", b.start_to_step1_s},
               {"start_system_s", b.start_system_s},
               {"first_step_s", b.first_step_s}};
      for (const LaunchTime& l : b.launches)
        out["launches"].push_back({{"kernel", l.kernel},
                                   {"origin", l.origin},
                                   {"ms", l.seconds * 1e3},
                                   {"flops", l.cost.flops},
                                   {"bytes", l.cost.bytes_read + l.cost.bytes_written}});
      fmt::print("{}\n", out.dump(2));
      return;
    }
    fmt::print(
        "{}: {:.2f} ms per step, {:.1f} GFLOP/s ({:.0f} % of the measured GEMM peak), arena {}, first "
        "step begins at {:.2f} s and takes {:.2f} s\n",
        o->workload, b.ms_per_step, b.gflops, b.percent_of_peak, format_bytes(b.arena_bytes), b.start_to_step1_s,
        b.first_step_s);
    if (o->profile) print_profile(b);
  });
}

void add_loader(CLI::App& bench) {
  struct Options {
    RecipeOptions recipe;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd = bench.add_subcommand("loader", "What the loader of a recipe gives, and what its step takes");
  o->recipe.add_to(*cmd);
  cmd->add_flag("--json", o->json, "Print the result as JSON");
  cmd->footer("Example: lathe bench loader fashion_mnist --set data.threads=2 --set data.augment.rotate=10");
  cmd->callback([o] {
    const Recipe r = o->recipe.load();
    const LoaderBench b = bench_loader(r);
    const double ratio = b.samples_per_second / b.needed_per_second;
    if (o->json) {
      fmt::print("{}\n", Json{{"recipe", r.name},
                              {"device", r.device.name},
                              {"threads", r.data.threads},
                              {"batch", b.batch},
                              {"samples_per_second", b.samples_per_second},
                              {"mb_per_second", b.bytes_per_second / 1e6},
                              {"step_ms", b.step_seconds * 1e3},
                              {"needed_samples_per_second", b.needed_per_second},
                              {"ratio", ratio}}
                             .dump(2));
      return;
    }
    fmt::print(
        "{}: the loader gives {:.0f} samples/s ({:.0f} MB/s) with {} thread{}; a step of {} on {} takes {:.2f} ms, so "
        "it "
        "needs {:.0f} samples/s: {:.1f} times what it needs{}\n",
        r.name, b.samples_per_second, b.bytes_per_second / 1e6, r.data.threads, r.data.threads == 1 ? "" : "s", b.batch,
        r.device.name, b.step_seconds * 1e3, b.needed_per_second, ratio,
        ratio < 1 ? "; training waits for data: raise data.threads" : "");
  });
}

}  // namespace

void add_bench(CLI::App& app, int& exit) {
  CLI::App* cmd = app.add_subcommand(
      "bench", "Measure one op, one training step or a loader: achieved rates and % of this machine's peak");
  cmd->require_subcommand(1);
  cmd->footer("Example: lathe bench op matmul; lathe bench step mlp; lathe bench loader fashion_mnist");
  add_step(*cmd);
  add_loader(*cmd);
  add_bench_op(*cmd, exit);
  add_tune_device(*cmd);
}

}  // namespace lathe::cli
