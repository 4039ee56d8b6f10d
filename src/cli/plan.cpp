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
  row("snapshot", m.snapshot, "the state, while a checkpoint is written");
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
    std::vector<std::string> disabled;
    std::string target, device_memory, svg;
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
  cmd->add_flag("--json", o->json, "Print all of it as JSON");
  cmd->footer(
      "Examples: lathe plan fashion_mnist --set train.batch_size=1024 --nodes\n"
      "          lathe plan fashion_mnist --target a100-40gb --device-memory 16GiB\n"
      "          lathe plan fashion_mnist --curve");
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
    const Compiled c = compile(r, describe_data(r), options);
    const int64_t outside = estimate_outside(c, 0);
    if (o->json) {
      const RunMemory m = c.memory();
      nlohmann::ordered_json j = nlohmann::ordered_json::parse(certificate_text_json(c.set));
      j["run"] = {{"arena", m.arena},
                  {"device_staging", m.device_staging},
                  {"host_staging", m.host_staging},
                  {"metrics", m.metrics},
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
