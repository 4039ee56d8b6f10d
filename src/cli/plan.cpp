#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace lathe::cli {
namespace {

// A plan for a device that is not there is fine, if one knows it.
void warn_if_absent(const Recipe& r) {
  const DeviceName name = parse_device_name(r.device.name);
  const Backend& backend = find_backend(name.backend);
  const auto devices = backend.devices();
  if (name.index < static_cast<int>(devices.size())) return;
  fmt::print(stderr,
             "lathe: warning: {}: no such device here ({}); planned with the limits of any device of its kind\n",
             r.device.name,
             devices.empty() ? backend.unavailable_reason()
                             : fmt::format("there {} {}", devices.size() == 1 ? "is" : "are", devices.size()));
}

void print_run(const Compiled& c, int64_t outside) {
  const RunMemory m = c.memory();
  const auto row = [](const char* what, int64_t bytes, const char* note = "") {
    fmt::print("  {:<16} {:>14}  {:>12}  {}\n", what, bytes, format_bytes(bytes), note);
  };
  fmt::print("A run of {} on {} allocates, to the byte:\n", c.recipe.name, c.target.name);
  row("arena", m.arena);
  if (m.device_staging > 0) row("device staging", m.device_staging, "two batches on the device");
  row("host staging", m.host_staging, "batches prepared ahead");
  row("metrics", m.metrics);
  if (m.communication > 0) row("communication", m.communication, "messages between ranks");
  row("snapshot", m.snapshot, "a tensor as a whole, twice: what checkpoints are written from");
  row("loader", m.loader, "images before augmentation, one per thread");
  row("data set", m.data, "in memory");
  row("total", m.total());
  row("outside", outside, "estimated: program, libraries, driver, stacks; the run measures it");
  if (c.has("eval") && c.eval_batch < eval_batch_of(c.recipe, c.data))
    fmt::print("\nmemory.budget: evaluation goes in batches of {} instead of {} samples.\n", c.eval_batch,
               eval_batch_of(c.recipe, c.data));
  fmt::print("\nBuilt, optimised and planned in {:.0f} ms.\n\n", c.seconds * 1e3);
}

void print_target(const Compiled& c, const DeviceSpec& t) {
  fmt::print("Target {}: {}, {} kernels, {} of memory, {:.0f} GB/s", t.name, t.description, t.backend,
             format_bytes(c.target.memory), t.bandwidth / 1e9);
  if (t.capability > 0) fmt::print(", compute capability {}.{}", t.capability / 10, t.capability % 10);
  for (const DeviceSpecPeak& p : t.peaks) fmt::print(", {} {:.0f} TFLOP/s", p.type, p.flops / 1e12);
  fmt::print(
      "\nNo Program can be faster there (every launch at the peak of its type or the memory's bandwidth, whichever is "
      "slower):\n");
  for (const Program& p : c.set.programs) fmt::print("  {:<16} {:>10.3f} ms\n", p.name, 1e3 * least_seconds(p, t));
  fmt::print("\n");
}

// What a step of training is: the graph that takes batches, and the update where there is one.
const Program& step_of(const Compiled& c) { return c.set.programs[c.program(c.has("train") ? "train" : "accumulate")]; }

std::string ranks_text(const Part& p) {
  return p.size() == 1 ? fmt::format("rank {}", p.first) : fmt::format("ranks {} to {}", p.first, p.last - 1);
}

struct FoundLink {   // The link that a plan for ranks is made with.
  Link link;         // between them
  std::string from;  // where it was found
};

Link measured_link(comm::Group& group) {
  const comm::LinkRates rates = comm::measure_link(group);
  return {rates.latency, rates.bandwidth};
}

Link parse_link_option(const std::string& text) {
  if (const auto link = parse_link(text)) return *link;
  throw UserError(
      fmt::format("--link: expected a latency (ns, us, ms) and a bandwidth (kbit/s, Mbit/s, Gbit/s, kB/s, MB/s, GB/s) "
                  "like 50us,1Gbit/s, got \"{}\"",
                  text),
      Exit::usage);
}

// `given`: --link. Without one it is measured: between the ranks that a launcher started, all of which call this, else
// between two threads.
FoundLink find_link(const std::optional<Link>& given, comm::World* world) {
  if (given) return {*given, "as given"};
  if (world)
    return {measured_link(world->group()),
            fmt::format("measured between the {} ranks of {}", world->launch().size, world->launch().launcher)};
  FoundLink out{{}, "measured between two threads of this host; --link 50us,1Gbit/s plans for another"};
  comm::run_ranks(comm::thread_groups(2), [&](comm::Group& group) {
    const Link link = measured_link(group);
    if (group.rank() == 0) out.link = link;
  });
  return out;
}

// The most nodes that the graphs of a plan had between two passes.
int64_t most_nodes(const Compiled& c) {
  int64_t most = 0;
  for (const PassReport& p : c.passes) most = std::max(most, static_cast<int64_t>(p.nodes));
  return most;
}

void print_ranks(const Recipe& r, CompileOptions options, int ranks, const FoundLink& found, bool json) {
  const Stopwatch begin;
  options.link = found.link;
  const std::vector<RankPlan> plans = compile_ranks(r, describe_data(r), options, ranks);
  const Compiled& first = plans[0].compiled;
  const Program& step = step_of(first);
  const Rates rates = rates_of(first.target);
  const Link& link = first.target.link;
  const StepTimes times = predict_times(step, rates, link);
  const std::vector<ScalingPoint> scaling = predict_scaling(step, rates, link, std::max(1024, ranks));
  const double seconds = begin.seconds();
  const int64_t bucket = first.recipe.passes.get<BucketOptions>().bytes.bytes;
  if (json) {
    nlohmann::ordered_json j{
        {"recipe", r.name},
        {"ranks", ranks},
        {"plan_seconds", seconds},
        {"nodes", most_nodes(first)},
        {"launches", step.launches.size()},
        {"link", {{"seconds", link.latency}, {"bytes_per_second", link.bandwidth}, {"from", found.from}}},
        {"bucket", bucket}};
    for (const RankPlan& p : plans) {
      const RunMemory m = p.compiled.memory();
      j["memory"].push_back({{"first_rank", p.ranks.first},
                             {"last_rank", p.ranks.last - 1},
                             {"arena", m.arena},
                             {"staging", m.host_staging + m.device_staging},
                             {"communication", m.communication},
                             {"snapshot", m.snapshot},
                             {"metrics", m.metrics},
                             {"loader", m.loader},
                             {"data", m.data},
                             {"total", m.total()}});
    }
    j["step"] = {{"bytes_sent", times.bytes_sent},
                 {"collectives", times.collectives},
                 {"seconds", times.seconds},
                 {"compute_seconds", times.compute},
                 {"communication_seconds", times.communication},
                 {"exposed_seconds", times.exposed}};
    for (const ScalingPoint& p : scaling)
      j["scaling"].push_back({{"ranks", p.ranks},
                              {"seconds", p.times.seconds},
                              {"communication_seconds", p.times.communication},
                              {"exposed_seconds", p.times.exposed},
                              {"efficiency", p.efficiency}});
    fmt::print("{}\n", j.dump(2));
    return;
  }
  fmt::print("{} on {} ranks of {}: a batch of {} samples is divided among them. Each allocates, to the byte:\n\n",
             r.name, ranks, first.target.name, first.steps.batch);
  fmt::print("  {:<20} {:>14} {:>12} {:>14} {:>14} {:>14} {:>14}  {}\n", "", "arena", "staging", "communication",
             "snapshot", "data, metrics", "total", "");
  for (const RankPlan& p : plans) {
    const RunMemory m = p.compiled.memory();
    fmt::print("  {:<20} {:>14} {:>12} {:>14} {:>14} {:>14} {:>14}  {}\n", ranks_text(p.ranks), m.arena,
               m.host_staging + m.device_staging, m.communication, m.snapshot, m.data + m.loader + m.metrics, m.total(),
               format_bytes(m.total()));
  }
  fmt::print("\nlink: {}{} ({})\n", link_text(link),
             bucket > 0 ? fmt::format("; buckets of {}", format_bytes(bucket)) : "", found.from);
  fmt::print(
      "A step ({}) of the first rank: {} collectives, {} sent. Predicted with that link, {:.1f} GFLOP/s and {:.1f} "
      "GB/s "
      "of memory: {:.3f} ms, of which compute {:.3f}, communication {:.3f}, not hidden {:.3f}.\n",
      step.name, times.collectives, format_bytes(static_cast<int64_t>(times.bytes_sent)), rates.flops / 1e9,
      rates.bytes / 1e9, 1e3 * times.seconds, 1e3 * times.compute, 1e3 * times.communication, 1e3 * times.exposed);
  fmt::print("\nThe same part of a batch for every rank, on more of them:\n{}", scaling_table(scaling));
  fmt::print("\nBuilt, optimised and planned in {:.0f} ms.\n", 1e3 * seconds);
}

void print_curve(const Recipe& r, const CompileOptions& options, const std::string& picture, bool json) {
  const MemoryCurve c = memory_curve(r, describe_data(r), options);
  draw_curve(c, picture);
  const CurvePoint& whole = c.points.front();
  const auto percent = [](double part, double all) { return all > 0 ? 100 * part / all : 0; };
  if (json) {
    nlohmann::ordered_json j{{"recipe", r.name},
                             {"device", c.device},
                             {"rates", c.rates_from},
                             {"flops_per_second", c.rates.flops},
                             {"bytes_per_second", c.rates.bytes},
                             {"picture", picture}};
    for (const CurvePoint& p : c.points)
      j["points"].push_back({{"budget", p.budget + c.rest},
                             {"arena_bytes", p.arena_bytes},
                             {"activations", p.activations},
                             {"run_again", p.launches},
                             {"flops", p.flops},
                             {"more_flops_percent", percent(p.extra_flops, whole.flops)},
                             {"seconds", p.seconds},
                             {"more_seconds_percent", percent(p.seconds - whole.seconds, whole.seconds)}});
    fmt::print("{}\n", j.dump(2));
    return;
  }
  fmt::print("A step of {} on {}, predicted with {:.1f} GFLOP/s and {:.1f} GB/s ({}):\n\n", r.name, c.device,
             c.rates.flops / 1e9, c.rates.bytes / 1e9, c.rates_from);
  fmt::print("  {:>14} {:>12} {:>12} {:>9} {:>11} {:>10} {:>11}\n", "memory.budget", "", "activations", "run again",
             "more FLOP", "ms", "more time");
  for (const CurvePoint& p : c.points)
    fmt::print("  {:>14} {:>12} {:>12} {:>9} {:>9.2f} % {:>10.3f} {:>9.2f} %  {}\n", p.budget + c.rest,
               format_bytes(p.budget + c.rest), format_bytes(p.activations), p.launches,
               percent(p.extra_flops, whole.flops), 1e3 * p.seconds, percent(p.seconds - whole.seconds, whole.seconds),
               std::string(static_cast<size_t>(30 * p.arena_bytes / whole.arena_bytes), '#'));
  fmt::print("\nNo smaller budget can be met. Drawn in {}.\n", picture);
}

}  // namespace

void add_plan(CLI::App& app, int&) {
  struct Options {
    RecipeOptions recipe;
    bool json = false, nodes = false, curve = false;
    int ranks = 0;  // 0: as many as a launcher started
    std::vector<std::string> disabled;
    std::string target, device_memory, svg, link;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd =
      app.add_subcommand("plan", "Exact memory, cost per node, kernels and why others declined; nothing runs");
  o->recipe.add_to(*cmd);
  CLI::Option* nodes =
      cmd->add_flag("--nodes", o->nodes, "List every launch: kernel, cost, bytes, candidates that declined and why");
  cmd->add_option("--disable-pass", o->disabled, "Leave out an optional pass; may be repeated");
  cmd->add_option("--target", o->target,
                  "Plan for a card that need not be here: a name (`lathe devices --targets`) or a device spec");
  CLI::Option* memory = cmd->add_option("--device-memory", o->device_memory,
                                        "Plan as if the device had so much memory, for example 16GiB");
  CLI::Option* curve =
      cmd->add_flag("--curve", o->curve, "Plan under ever smaller budgets: memory against predicted time");
  curve->excludes(nodes)->excludes(memory);
  cmd->add_option("--svg", o->svg, "Where --curve draws it; default: NAME_curve.svg here")->needs(curve);
  cmd->add_option("--ranks", o->ranks,
                  "Plan for so many ranks: bytes of each, bytes sent in a step, communication that is not hidden, and "
                  "how that goes on with more; default: those that a launcher started, or one")
      ->check(whole_number(1, 100000))
      ->excludes(nodes)
      ->excludes(curve);
  cmd->add_option(
         "--link", o->link,
         "Between ranks: latency and bandwidth, for example 50us,1Gbit/s; default: measured, between the ranks of "
         "a launcher or two threads of this host")
      ->check(not_empty())
      ->excludes(nodes)
      ->excludes(curve);
  cmd->add_flag("--json", o->json, "Print all of it as JSON");
  cmd->footer(
      "Examples: lathe plan fashion_mnist --set train.batch_size=1024 --nodes\n"
      "          lathe plan fashion_mnist --target a100-40gb --device-memory 16GiB\n"
      "          lathe plan fashion_mnist --curve\n"
      "          lathe plan fashion_resnet --ranks 64 --link 50us,1Gbit/s\n"
      "          mpirun -n 2 lathe plan fashion_resnet --ranks 64");
  cmd->callback([o] {
    const Recipe r = o->recipe.load();
    CompileOptions options;
    options.passes.disabled = o->disabled;
    if (!o->target.empty() && !o->recipe.device.empty())
      throw UserError("--target: a target says itself which kernels it takes; leave out --device", Exit::usage);
    if (!o->target.empty()) options.spec = load_device_spec(o->target);
    if (!o->device_memory.empty()) options.device_memory = parse_size_option("--device-memory", o->device_memory);
    if (!options.spec) warn_if_absent(r);
    if (o->curve && r.memory.budget.bytes > 0)
      throw UserError("memory.budget: --curve tries all budgets that can be met; leave it out", Exit::usage);
    if (o->curve) return print_curve(r, options, o->svg.empty() ? r.name + "_curve.svg" : o->svg, o->json);
    std::optional<Link> given;
    if (!o->link.empty()) given = parse_link_option(o->link);
    std::unique_ptr<comm::World> world = o->nodes ? nullptr : comm::find_world(r.comm.timeout);
    const int ranks = o->ranks > 0 ? o->ranks : world ? world->launch().size : 1;
    if (given && ranks == 1)
      throw UserError("--link: a plan for one rank has none; say for how many with --ranks", Exit::usage);
    std::optional<FoundLink> link;
    if (ranks > 1) link = find_link(given, world.get());
    if (world) {
      const bool speaks = world->launch().rank == 0;
      world->control().finish();
      world.reset();  // the others need not wait for the plan
      if (!speaks) return;
    }
    if (ranks > 1) return print_ranks(r, options, ranks, *link, o->json);
    const Compiled c = compile(r, describe_data(r), options);
    const int64_t outside = estimate_outside(c, 0);
    if (o->json) {
      const RunMemory m = c.memory();
      nlohmann::ordered_json j = nlohmann::ordered_json::parse(certificate_text_json(c.set));
      j["run"] = {{"arena", m.arena},
                  {"device_staging", m.device_staging},
                  {"host_staging", m.host_staging},
                  {"metrics", m.metrics},
                  {"communication", m.communication},
                  {"snapshot", m.snapshot},
                  {"loader", m.loader},
                  {"data", m.data},
                  {"total", m.total()},
                  {"outside", outside}};
      if (c.has("eval")) j["eval_batch"] = c.eval_batch;
      j["plan_seconds"] = c.seconds;
      if (options.spec) {
        j["target"] = {{"name", options.spec->name}, {"backend", options.spec->backend}, {"memory", c.target.memory}};
        for (const Program& p : c.set.programs) j["least_seconds"][p.name] = least_seconds(p, *options.spec);
      }
      fmt::print("{}\n", j.dump(2));
      return;
    }
    print_run(c, outside);
    if (options.spec) print_target(c, *options.spec);
    fmt::print("{}", o->nodes ? certificate(c.set) : memory_table(c.set));
  });
}

}  // namespace lathe::cli
