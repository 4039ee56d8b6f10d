#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "train/progress.h"
#include "train/trainer.h"

namespace lathe::cli {
namespace {

std::vector<std::string> with_device(std::vector<std::string> sets, const std::string& device) {
  if (!device.empty()) sets.push_back("device=" + device);
  return sets;
}

Which which(bool best) { return best ? Which::best : Which::newest; }

}  // namespace

void add_eval(CLI::App& app, int&) {
  struct Options {
    std::string run, device;
    std::vector<std::string> sets;
    bool json = false, best = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd =
      app.add_subcommand("eval", "Loss and accuracy of a run's newest valid (or best) checkpoint on its test data");
  cmd->add_option("RUN", o->run, "Run directory")->required();
  cmd->add_option("--set", o->sets, "Override a recipe key")->type_name("KEY=VALUE")->take_all()->expected(1);
  add_device_option(*cmd, o->device, "default: the run's");
  cmd->add_flag("--best", o->best, "The checkpoint of the best evaluation (checkpoint.best), not the newest");
  cmd->add_flag("--json", o->json, "Print the result as JSON");
  cmd->footer("Example: lathe eval runs/fashion_mnist-20260101-120000 --json");
  cmd->callback([o] {
    const EvalResult r = evaluate(o->run, with_device(o->sets, o->device), which(o->best));
    if (o->json)
      fmt::print("{}\n",
                 nlohmann::ordered_json{
                     {"loss", r.loss}, {"accuracy", r.accuracy}, {"samples", r.samples}, {"seconds", r.seconds}}
                     .dump(2));
    else
      fmt::print("  accuracy  {:.2f} %\n  loss      {:.4f}\n  samples   {} in {}\n", 100 * r.accuracy, r.loss,
                 r.samples, format_seconds(r.seconds));
  });
}

void add_predict(CLI::App& app, int&) {
  struct Options {
    std::string run, device;
    std::vector<std::string> inputs, sets;
    std::optional<int64_t> tokens;
    bool json = false, best = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd = app.add_subcommand("predict", "Classes of images, or the continuation of a text");
  cmd->add_option("RUN", o->run, "Run directory")->required();
  cmd->add_option("INPUT", o->inputs,
                  "Binary PGM/PPM image, IDX file of images, test:N or test:A-B (of the run's test data); "
                  "text models: a text file")
      ->required();
  cmd->add_option("--tokens", o->tokens, "Text models: bytes to write; default: 64")->check(CLI::Range(1, 1 << 20));
  cmd->add_option("--set", o->sets, "Override a recipe key")->type_name("KEY=VALUE")->take_all()->expected(1);
  add_device_option(*cmd, o->device, "default: the run's");
  cmd->add_flag("--best", o->best, "The checkpoint of the best evaluation (checkpoint.best), not the newest");
  cmd->add_flag("--json", o->json, "Print the result as JSON");
  cmd->footer("Example: lathe predict runs/fashion_mnist-20260101-120000 test:0-9");
  cmd->callback([o] {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const Prediction& p : predict(o->run, o->inputs, with_device(o->sets, o->device), o->tokens, which(o->best))) {
      const double best = p.probabilities[static_cast<size_t>(p.label)];
      if (o->json) {
        nlohmann::ordered_json j{
            {"input", p.input}, {"label", p.label}, {"probability", best}, {"probabilities", p.probabilities}};
        if (!p.text.empty()) j["text"] = p.text;
        all.push_back(std::move(j));
      } else if (!p.text.empty()) {
        fmt::print("{}: {}\n", p.input, p.text);
      } else {
        fmt::print("{:<40} class {:<4} {:5.1f} %\n", p.input, p.label, 100 * best);
      }
    }
    if (o->json) fmt::print("{}\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  });
}

}  // namespace lathe::cli
