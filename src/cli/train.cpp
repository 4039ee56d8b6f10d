#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/ranks.h"

namespace lathe::cli {
namespace {

namespace fs = std::filesystem;

// runs/<recipe>-<time>. Runs that start in one second are told apart when the directory is made (new_out).
std::string new_run_directory(const std::string& name) {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%d-%H%M%S", std::localtime(&now));
  return fmt::format("runs/{}-{}", name, text);
}

// The newest runs/<recipe>-*, by name: names end in the time.
std::string newest_run_directory(const std::string& name) {
  std::string best;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator("runs", ec)) {
    const std::string file = entry.path().filename().string();
    if (file.starts_with(name + "-") && entry.is_directory()) best = std::max(best, entry.path().string());
  }
  if (best.empty())
    throw UserError(fmt::format("--resume: no directory runs/{}-*; name the run with --out DIR", name),
                    Exit::missing_input);
  return best;
}

// What the training time of a resumed run is made of.
std::string about_parts(const TrainResult& r) {
  if (r.timed_from > 0) return fmt::format(" since step {}; that of earlier steps was not kept", r.timed_from);
  return r.total_seconds > r.seconds ? fmt::format(", of that since --resume: {}", format_seconds(r.seconds)) : "";
}

void print_table(const TrainResult& r) {
  const auto row = [](const char* what, const std::string& value) { fmt::print("  {:<22} {}\n", what, value); };
  fmt::print("\n");
  for (const auto& found : {r.validation, r.test}) {
    if (!found) continue;
    const std::string set = data::to_string(found->split);
    found->each([&](const char* name, double value) { row((set + " " + name).c_str(), metric_text(name, value)); });
    row((set + " loss").c_str(), loss_text(found->loss));
  }
  if (r.best_step > 0) row("best on validation", fmt::format("step {}", r.best_step));
  if (r.ranks > 1) row("ranks", std::to_string(r.ranks));
  row("steps", std::to_string(r.steps));
  if (r.skipped > 0)
    row("refused steps", fmt::format("{} of {}: loss or gradients were not finite, and the weights stayed as they were",
                                     r.skipped, r.steps));
  if (!r.unchanged && r.steps > 0) {
    row("loss of the last batch", loss_text(r.loss));
    row("samples/s", fmt::format("{:.0f}", r.samples_per_second));
    row("training time", format_seconds(r.total_seconds) + about_parts(r));
    row("waited for data", format_seconds(r.wait_seconds));
    if (const std::string straggler = straggler_text(r.by_rank); !straggler.empty()) row("slowest", straggler);
  }
  if (r.peak_flops > 0 && !r.unchanged && r.steps > 0)
    row("compute", fmt::format("{:.1f} GFLOP/s, {:.0f} % of the measured GEMM peak ({:.0f})", r.flops_per_second / 1e9,
                               100 * r.flops_per_second / r.peak_flops, r.peak_flops / 1e9));
  row("memory predicted", fmt::format("{} ({} bytes){}", format_bytes(r.memory.total()), r.memory.total(),
                                      r.ranks > 1 ? ", of the first rank" : ""));
  row("memory allocated", fmt::format("{} ({} bytes)", format_bytes(r.allocated), r.allocated));
  row("resident, peak", fmt::format("{}, of that outside: {} (estimated {})", format_bytes(r.resident_bytes),
                                    format_bytes(r.outside_measured), format_bytes(r.outside_estimated)));
  row("run directory", r.out);
}

// The training is done, whatever becomes of its page. `plan`: of a run that must end soon: it was stopped, or other
// ranks have ended, too.
void report_run(const std::string& run, const Compiled* plan, bool silent) {
  try {
    const std::string path = plan ? write_short_report(run, *plan) : write_report(run);
    if (!silent) fmt::print("  {:<22} {}\n", "report", path);
  } catch (const Error& e) {
    fmt::print(stderr, "lathe: warning: no report.html: {}\n", e.what());
  }
}

// Without progress, what is wrong is said all the same.
class Warnings final : public ProgressSink {
 public:
  void note(std::string_view text) override {
    if (text.starts_with("warning: ")) fmt::print(stderr, "lathe: {}\n", text);
  }
};

void print_lr_find(const LrFind& f, bool json) {
  const auto number = [](const std::optional<double>& v) {
    return v ? nlohmann::ordered_json(*v) : nlohmann::ordered_json(nullptr);
  };
  if (json) {
    nlohmann::ordered_json points = nlohmann::ordered_json::array();
    for (const LrFindPoint& p : f.points) points.push_back({{"lr", p.lr}, {"loss", p.loss}, {"smooth", p.smooth}});
    const nlohmann::ordered_json all{{"suggested", number(f.suggested)},
                                     {"lowest", f.lowest},
                                     {"exploded", f.exploded},
                                     {"picture", f.picture},
                                     {"table", f.table},
                                     {"points", points}};
    fmt::print("{}\n", all.dump(2));
    return;
  }
  const auto row = [](const char* what, const std::string& value) { fmt::print("  {:<22} {}\n", what, value); };
  if (f.suggested)
    row("suggested", fmt::format("optimizer.lr = {:.2g} (the loss falls fastest there)", *f.suggested));
  else
    row("suggested", "nothing: the loss did not fall at any rate; look at the data and the model");
  if (f.suggested) row("lowest loss at", fmt::format("{:.2g} (too large to train with)", f.lowest));
  row("sweep", fmt::format("{} steps, {}", f.points.size(),
                           f.exploded ? "ended by an exploding loss" : "no explosion up to the largest rate"));
  row("picture", f.picture);
  row("table", f.table);
}

}  // namespace

void add_train(CLI::App& app, int& exit) {
  struct Options {
    RecipeOptions recipe;
    std::string out;
    bool resume = false, json = false, quiet = false, lr_find = false, profile = false;
    int64_t profile_steps = 10, ranks = 1;
    std::vector<std::string> disabled;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd = app.add_subcommand("train", "Train a recipe");
  o->recipe.add_to(*cmd);
  cmd->add_option("--out", o->out, "Run directory; default: runs/<recipe>-<time>")->check(not_empty());
  CLI::Option* resume = cmd->add_flag(
      "--resume", o->resume, "Go on from the newest valid checkpoint of --out (default: the newest run of the recipe)");
  CLI::Option* ranks = cmd->add_option("--ranks", o->ranks,
                                       "Train on so many ranks, threads of this process that divide each batch; the "
                                       "result is that of one, but for rounding. device.threads is each one's")
                           ->check(whole_number(1, 1024));
  cmd->add_flag(
         "--lr-find", o->lr_find,
         "Train nothing: try learning rates from 1e-6 to 10 on some steps, suggest one, and write lr_find.svg and "
         "lr_find.tsv to --out")
      ->excludes(resume)
      ->excludes(ranks);
  CLI::Option* profile = cmd->add_flag(
      "--profile", o->profile,
      "Write trace.json to the run directory: what each thread and device queue of every rank did in some steps, with "
      "the speed of every kernel; open it in Perfetto or chrome://tracing. On several ranks report.html shows a step "
      "of it");
  cmd->add_option("--profile-steps", o->profile_steps, "Steps in the trace, after the first three; default: 10")
      ->check(whole_number(1, 1000))
      ->needs(profile);
  cmd->add_option("--disable-pass", o->disabled, "Leave out an optional pass, e.g. fuse; may be repeated");
  cmd->add_flag("--json", o->json, "Print the result as JSON, and nothing else, on standard output");
  cmd->add_flag("-q,--quiet", o->quiet, "No progress, no report.html; warnings go to the standard error");
  cmd->footer(
      "Example: lathe train fashion_mnist --set train.epochs=2 --set seed=7 --out runs/mine\n"
      "Exit codes: 0 done, 75 stopped by a signal: go on with --resume, 65 bad data or non-finite\n"
      "loss, 66 missing input, 71 no such device, device lost or not enough memory, 73/74 cannot write, 76 a rank "
      "failed, "
      "78 bad recipe, 64 usage, 70 bug.\n"
      "Several processes: mpirun -n 4 lathe train ..., srun lathe train ...; see docs/distributed.md.");
  cmd->callback([o, &exit] {
    TrainOptions t;
    t.out = o->out;
    t.resume = o->resume;
    TerminalProgress progress(stdout);
    Warnings warnings;
    t.progress = o->quiet || o->json ? static_cast<ProgressSink*>(&warnings) : &progress;
    t.measure_peak = !o->quiet;
    t.compile.passes.disabled = o->disabled;
    // A resumed run without a recipe continues with its own.
    const bool own =
        o->resume && o->recipe.recipe.empty() && !t.out.empty() && fs::exists(fs::path(t.out) / "recipe.toml");
    // A rank without a recipe meets the others all the same: one of them says what is wrong, and none waits for it.
    std::optional<Recipe> loaded;
    std::optional<Error> refused;
    try {
      loaded = own ? load_run_recipe(t.out, o->recipe.all_sets()) : o->recipe.load();
    } catch (const Error& e) {
      refused = e;
    }
    const std::unique_ptr<comm::World> world = comm::find_world(loaded ? loaded->comm.timeout : CommRecipe().timeout);
    if (world) say_who_failed(*world);
    if (refused && !world) throw Error(*refused);
    if (refused) {
      world->control().fail(refused->what());
      exit = leave_together(*world, *refused);
      return;
    }
    const Recipe& r = *loaded;
    const bool speaks = !world || world->launch().rank == 0;
    // A rank has the memory and the time of its part: a report takes half a GiB to measure the device, while all wait.
    if (world) t.measure_peak = false;
    t.alike = {{"--profile", o->profile ? fmt::format("{} steps", o->profile_steps) : "no"}};
    if (world && (o->ranks > 1 || o->lr_find))
      throw UserError(fmt::format("{}: {} has started {} ranks; leave it out", o->ranks > 1 ? "--ranks" : "--lr-find",
                                  world->launch().launcher, world->launch().size),
                      Exit::usage);
    t.new_out = t.out.empty() && !o->resume;
    if (t.out.empty()) t.out = o->resume ? newest_run_directory(r.name) : new_run_directory(r.name);
    if (o->lr_find) {
      LrFindOptions find;
      find.out = t.out;
      find.new_out = t.new_out;
      find.compile = t.compile;
      print_lr_find(find_learning_rate(r, find), o->json);
      return;
    }
    std::optional<ExitSignals> signals;
    if (world)
      hold_signals();
    else
      signals.emplace("stopped before the first step: there is nothing to keep, start it again");
    std::optional<StepProfile> trace;
    if (o->profile) trace.emplace(r, t.out + "/trace.json", o->profile_steps, world ? &world->group() : nullptr);
    t.on_step = [&](int64_t, Executor& e) {
      if (signals) {
        signals->drop_file();
        signals->set_meaning("stopped after the last step: the checkpoint is written, --resume shows the result");
      }
      if (trace) trace->after_step(e);
    };
    std::string out = t.out;
    t.on_start = [&](const std::string& chosen, int64_t step) {
      out = chosen;
      if (trace) trace->write_to(out + "/trace.json");
      if (!signals) return;
      TrainResult stopped;
      stopped.preempted = true;
      stopped.steps = step;
      stopped.loss = stopped.eval_loss = stopped.accuracy = std::nan("");
      stopped.out = out;
      stopped.device = r.device.name;
      signals->set_file(out + "/summary.json", summary_json(stopped));
    };
    std::optional<Compiled> plan;  // of a run whose report has to be short
    t.on_cut_short = [&](const Compiled& c) { plan = c; };
    if (world)
      t.on_end = [&](const Compiled& c) {
        if (trace) trace->finish();  // by all ranks together
        if (speaks) plan = c;
      };
    const bool wants_report = !o->quiet, json = o->json;
    const int count = static_cast<int>(o->ranks);
    TrainResult result;
    try {
      result = world ? train_in(*world, r, t) : count > 1 ? train_on_ranks(r, t, count) : train(r, t);
    } catch (const Error& e) {
      const bool is_own = e.kind() != ErrorKind::comm;
      if (is_own && wants_report && plan && !world) report_run(out, &*plan, true);
      if (!world || !world->control().failure()) throw;
      if (e.kind() == ErrorKind::device) std::_Exit(static_cast<int>(e.exit_code()));  // as in main()
      exit = leave_together(*world, e);
      return;
    }
    exit = result.preempted ? static_cast<int>(Exit::preempted) : 0;
    if (trace) trace->finish();
    if (!speaks) return;
    if (json)
      fmt::print("{}", summary_json(result));
    else
      print_table(result);
    if (trace && !json) fmt::print("  {:<22} {}\n", "trace", trace->about());
    // A run of a launcher that was at its end keeps the report that it has: that may be a longer one.
    if (wants_report && !(world && result.unchanged)) report_run(out, plan ? &*plan : nullptr, json);
  });
}

}  // namespace lathe::cli
