#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "plan/certificate.h"
#include "train/compile.h"
#include "train/progress.h"

namespace lathe::cli {
namespace {

void print_run(const Compiled& c) {
  const RunMemory m = c.memory();
  const auto row = [](const char* what, int64_t bytes, const char* note = "") {
    fmt::print("  {:<16} {:>14}  {:>12}  {}\n", what, bytes, format_bytes(bytes), note);
  };
  fmt::print("A run of {} on {} allocates, to the byte:\n", c.recipe.name, c.recipe.device.name);
  row("arena", m.arena);
  if (m.device_staging > 0) row("device staging", m.device_staging, "two batches on the device");
  row("host staging", m.host_staging, "batches prepared ahead");
  row("metrics", m.metrics);
  row("snapshot", m.snapshot, "the state, while a checkpoint is written");
  row("total", m.total());
  fmt::print(
      "\nOutside of that, not planned: the program and its libraries, thread stacks, the data set in memory; the run "
      "shows the\n"
      "resident size beside these bytes. Built, optimised and planned in {:.0f} ms.\n\n",
      c.seconds * 1e3);
}

}  // namespace

void add_plan(CLI::App& app, int&) {
  struct Options {
    RecipeOptions recipe;
    bool json = false, nodes = false;
    std::vector<std::string> disabled;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd =
      app.add_subcommand("plan", "Exact memory, cost per node, kernels and why others declined; nothing runs");
  o->recipe.add_to(*cmd);
  cmd->add_flag("--nodes", o->nodes, "List every launch: kernel, cost, bytes, candidates that declined and why");
  cmd->add_option("--disable-pass", o->disabled, "Leave out an optional pass; may be repeated");
  cmd->add_flag("--json", o->json, "Print all of it as JSON");
  cmd->footer("Example: lathe plan fashion_mnist --set train.batch_size=1024 --nodes");
  cmd->callback([o] {
    const Recipe r = o->recipe.load();
    CompileOptions options;
    options.passes.disabled = o->disabled;
    const Compiled c = compile(r, describe_data(r), options);
    if (o->json) {
      const RunMemory m = c.memory();
      nlohmann::ordered_json j = certificate_json(c.set);
      j["run"] = {{"arena", m.arena},
                  {"device_staging", m.device_staging},
                  {"host_staging", m.host_staging},
                  {"metrics", m.metrics},
                  {"snapshot", m.snapshot},
                  {"total", m.total()}};
      j["plan_seconds"] = c.seconds;
      fmt::print("{}\n", j.dump(2));
      return;
    }
    print_run(c);
    fmt::print("{}", o->nodes ? certificate(c.set) : memory_table(c.set));
  });
}

}  // namespace lathe::cli
