#include "cli/command.h"

namespace lathe::cli {

void add_report(CLI::App& app, int&) {
  struct Options {
    std::string run, out;
    std::vector<std::string> sets;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd = app.add_subcommand(
      "report", "A run as one page: curves, confusion matrix, predictions, memory, time per node (report.html)");
  cmd->add_option("RUN", o->run, "Run directory")->required();
  cmd->add_option("--out", o->out, "File to write; default: RUN/report.html")->check(not_empty());
  cmd->add_option("--set", o->sets, "Override a recipe key")->type_name("KEY=VALUE")->take_all()->expected(1);
  cmd->footer("Example: lathe report runs/fashion_mnist-20260101-120000 --out today.html");
  cmd->callback([o] {
    if (o->out.empty()) {
      o->out = write_report(o->run, o->sets);
    } else {
      io::replace_file(o->out, make_report(o->run, o->sets));
    }
    fmt::print("{}\n", o->out);
  });
}

}  // namespace lathe::cli
