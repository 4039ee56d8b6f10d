#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/ranks.h"

namespace lathe::cli {

std::vector<std::string> with_device(std::vector<std::string> sets, const std::string& device) {
  if (!device.empty()) sets.push_back("device=" + device);
  return sets;
}

namespace {

// Seconds; where a run cannot be read, that is said when all ranks are there.
double timeout_of(const std::string& run, const std::vector<std::string>& sets) {
  try {
    return load_run_recipe(run, sets).comm.timeout;
  } catch (const Error&) {
    return CommRecipe().timeout;
  }
}

}  // namespace

void add_eval(CLI::App& app, int& exit) {
  struct Options {
    std::string run, device, split;
    std::vector<std::string> sets;
    bool json = false, best = false;
    int64_t ranks = 1;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd =
      app.add_subcommand("eval", "Loss and metrics of a run's newest valid (or best) checkpoint on its test set");
  cmd->add_option("RUN", o->run, "Run directory")->required();
  cmd->add_option("--split", o->split,
                  "Which set: test (default), or validation, which training held out (data.validation)")
      ->check(CLI::IsMember({"validation", "test"}));
  cmd->add_option("--set", o->sets, "Override a recipe key")->type_name("KEY=VALUE")->take_all()->expected(1);
  add_device_option(*cmd, o->device, "default: the run's");
  cmd->add_flag("--best", o->best,
                "The checkpoint of the best evaluation on the validation set (checkpoint.best), not the newest");
  cmd->add_option("--ranks", o->ranks,
                  "So many ranks, threads of this process, divide the samples; under mpirun and srun the ranks are "
                  "processes, and this is left out")
      ->check(whole_number(1, 1024));
  cmd->add_flag("--json", o->json, "Print the result as JSON");
  cmd->footer(
      "Example: lathe eval runs/fashion_mnist-20260101-120000 --json\n"
      "         lathe eval runs/mine --best --split validation\n"
      "         mpirun -n 4 lathe eval runs/mine");
  cmd->callback([o, &exit] {
    EvalOptions e;
    e.sets = with_device(o->sets, o->device);
    if (o->best) e.which = Which::best;
    if (!o->split.empty()) e.split = o->split == "test" ? data::Split::test : data::Split::validation;
    const std::unique_ptr<comm::World> world = comm::find_world(timeout_of(o->run, e.sets));
    if (world && o->ranks > 1)
      throw UserError(
          fmt::format("--ranks: {} has started {} ranks; leave it out", world->launch().launcher, world->launch().size),
          Exit::usage);
    EvalResult r;
    if (world) {
      say_who_failed(*world);
      try {
        r = evaluate_in(*world, o->run, e);
      } catch (const Error& error) {
        if (!world->control().failure()) throw;
        exit = leave_together(*world, error);
        return;
      }
      if (world->launch().rank > 0) return;
    } else {
      r = o->ranks > 1 ? evaluate_on_ranks(o->run, e, static_cast<int>(o->ranks)) : evaluate(o->run, e);
    }
    if (!r.warning.empty()) fmt::print(stderr, "lathe: warning: {}\n", r.warning);
    if (o->json) {
      nlohmann::ordered_json j{{"set", data::to_string(r.split)}, {"loss", r.loss}};
      r.each([&](const char* name, double value) { j[name] = value; });
      j["samples"] = r.samples;
      j["seconds"] = r.seconds;
      if (!r.warning.empty()) j["warnings"] = {r.warning};
      fmt::print("{}\n", j.dump(2));
    } else {
      const std::string set = data::to_string(r.split);
      const auto row = [](const std::string& name, const std::string& text) {
        fmt::print("  {:<19}  {}\n", name, text);
      };
      r.each([&](const char* name, double value) { row(set + " " + name, metric_text(name, value)); });
      row(set + " loss", fmt::format("{:.4f}", r.loss));
      row("samples", fmt::format("{} in {}", r.samples, format_seconds(r.seconds)));
    }
  });
}

}  // namespace lathe::cli
