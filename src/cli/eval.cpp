#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"

namespace lathe::cli {

std::vector<std::string> with_device(std::vector<std::string> sets, const std::string& device) {
  if (!device.empty()) sets.push_back("device=" + device);
  return sets;
}

void add_eval(CLI::App& app, int&) {
  struct Options {
    std::string run, device, split;
    std::vector<std::string> sets;
    bool json = false, best = false;
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
  cmd->add_flag("--json", o->json, "Print the result as JSON");
  cmd->footer(
      "Example: lathe eval runs/fashion_mnist-20260101-120000 --json\n"
      "         lathe eval runs/mine --best --split validation");
  cmd->callback([o] {
    std::optional<data::Split> split;
    if (!o->split.empty()) split = o->split == "test" ? data::Split::test : data::Split::validation;
    const EvalResult r =
        evaluate(o->run, with_device(o->sets, o->device), o->best ? Which::best : Which::newest, split);
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
