#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace lathe::cli {
namespace {

// Writes 00-step-set.ir before the first pass, then NN-PASS.ir after each pass that changed the set.
class Dump {
 public:
  Dump(const std::string& dir, const StepSet& s) : dir_(dir) {
    io::make_folder(dir);
    write("00-step-set", s);
  }
  void pass(const PassEntry& p, const StepSet& before, const StepSet& after) {
    ++number_;
    if (!structurally_equal(before, after)) write(fmt::format("{:02}-{}", number_, p.name), after);
  }

 private:
  void write(const std::string& name, const StepSet& s) {
    io::replace_file(dir_ + "/" + name + ".ir", print(s) + "\n");
  }

  std::string dir_;
  int number_ = 0;
};

}  // namespace

void add_ir(CLI::App& app, int&) {
  struct Options {
    RecipeOptions recipe;
    std::string after = "", program = "", dump = "";
    std::vector<std::string> disabled;
    int ranks = 1;
    bool time = false, json = false, before = false, set = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd = app.add_subcommand("ir", "Print the graph of a step, before or after any pass");
  o->recipe.add_to(*cmd);
  auto* after_flag = cmd->add_option("--after", o->after, "Stop after this pass; default: after all");
  auto* before_flag = cmd->add_flag("--before", o->before, "Before the first pass, as the model was written");
  cmd->add_option("--program", o->program, "train, eval, update, ...; default: the first")->check(not_empty());
  cmd->add_flag("--set-of-steps", o->set, "All graphs, with the table of their state")->excludes("--program");
  auto* disable = cmd->add_option("--disable-pass", o->disabled, "Leave out an optional pass; may be repeated");
  auto* ranks = cmd->add_option("--ranks", o->ranks, "Divided among so many ranks: the graphs of the first")
                    ->check(whole_number(1, 1 << 20));
  auto* dump_flag =
      cmd->add_option("--dump", o->dump, "Write the graph to this directory after each pass that changed it")
          ->check(not_empty());
  auto* time = cmd->add_flag("--time-passes", o->time, "Print time and size after each pass instead of the graph");
  cmd->add_flag("--json", o->json, "With --time-passes: as JSON")->needs(time);
  for (CLI::Option* other : {after_flag, disable, ranks, dump_flag, time}) before_flag->excludes(other);
  cmd->footer("Example: lathe ir mlp --after autodiff; lathe ir mlp --ranks 4 --after partition");
  cmd->callback([o] {
    const Recipe r = o->recipe.load();
    StepSet set = build_steps(r, describe_data(r), {});
    const auto show = [&] {
      if (o->set) {
        fmt::print("{}\n", print(set));
        return;
      }
      std::vector<std::string> names;
      for (const Graph& g : set.graphs) names.push_back(g.name);
      const Graph* g = o->program.empty() ? &set.graphs[0] : set.find_graph(o->program);
      if (!g)
        throw UserError(fmt::format("--program: expected one of {}, got \"{}\"", fmt::join(names, ", "), o->program),
                        Exit::usage);
      fmt::print("{}\n", print(*g));
    };
    if (o->before) {
      show();
      return;
    }
    const DeviceName device = parse_device_name(r.device.name);
    PipelineOptions options;
    options.disabled = o->disabled;
    options.stop_after = o->after;
    std::vector<PassReport> reports;
    std::optional<Dump> dump;
    if (!o->dump.empty()) {
      dump.emplace(o->dump, set);
      options.on_pass = [&](const PassEntry& p, const StepSet& before, const StepSet& after) {
        dump->pass(p, before, after);
      };
    }
    PassContext context = pass_context(r, find_backend(device.backend).target({device.index, 1}));
    context.mesh.ranks = o->ranks;
    set = run_pipeline(std::move(set), context, options, &reports);
    if (!o->time) {
      if (o->dump.empty())
        show();
      else
        fmt::print("graphs written to {}\n", o->dump);
      return;
    }
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const PassReport& p : reports) {
      if (o->json)
        list.push_back({{"pass", p.name},
                        {"seconds", p.seconds},
                        {"changed", p.changed},
                        {"disabled", p.disabled},
                        {"nodes", p.nodes}});
      else
        fmt::print("  {:<14} {:8.2f} ms  {:6} nodes  {}\n", p.name, p.seconds * 1e3, p.nodes,
                   p.disabled  ? "disabled"
                   : p.changed ? ""
                               : "(unchanged)");
    }
    if (o->json) fmt::print("{}\n", list.dump(2));
  });
}

}  // namespace lathe::cli
