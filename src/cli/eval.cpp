#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"

namespace lathe::cli {

std::vector<std::string> with_device(std::vector<std::string> sets, const std::string& device) {
  if (!device.empty()) sets.push_back("device=" + device);
  return sets;
}

namespace {

// --split, or a --set that names a set instead of a key.
std::optional<data::Split> split_of(const std::string& option, std::vector<std::string>& sets) {
  std::string name = option;
  std::erase_if(sets, [&](const std::string& s) {
    const bool set = s == "validation" || s == "test";
    if (set) name = s;
    return set;
  });
  if (name.empty()) return {};
  return name == "test" ? data::Split::test : data::Split::validation;
}

}  // namespace

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
  cmd->add_option(
         "--split", o->split,
         "Which set: test (default), or validation, which training held out (data.validation); --set validation "
         "is the same")
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
    std::vector<std::string> sets = o->sets;
    const auto split = split_of(o->split, sets);
    const EvalResult r =
        evaluate(o->run, with_device(std::move(sets), o->device), o->best ? Which::best : Which::newest, split);
    if (o->json) {
      nlohmann::ordered_json j{{"set", data::to_string(r.split)}, {"loss", r.loss}};
      r.each([&](const char* name, double value) { j[name] = value; });
      j["samples"] = r.samples;
      j["seconds"] = r.seconds;
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
