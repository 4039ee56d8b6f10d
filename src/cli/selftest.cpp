#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"

namespace lathe::cli {
namespace {

using Json = nlohmann::ordered_json;

// Prints a table, or collects it; returns whether all passes keep the numbers.
bool run_passes_test(const std::vector<int>& ranks, bool json) {
  Json list = Json::array();
  bool ok = true;
  const Target target = find_backend("cpu").target({});
  if (!json && !ranks.empty())
    fmt::print(
        "The tiny twin of each recipe divided among ranks, all of which run here, against the whole: largest relative "
        "error of\nan output after partition and each pass behind it, in f64.\n\n");
  else if (!json)
    fmt::print(
        "The tiny twin of each recipe before and after each pass that changes it: largest relative error of an output, "
        "in f64.\n"
        "(autodiff: the derivative along a random direction, against central differences of the loss.)\n\n");
  selftest_passes(
      pipeline(), target,
      [&](const GraphVerdict& g) {
        ok = ok && g.verdict.ok();
        Json passes = Json::array();
        double worst = 0;
        std::vector<std::string> compared;
        for (const PassCheck& p : g.verdict.passes) {
          passes.push_back({{"pass", p.name}, {"compared", p.compared}, {"error", p.error}});
          if (!p.compared) continue;
          compared.push_back(p.name);
          worst = std::max(worst, p.error);
        }
        list.push_back({{"recipe", g.recipe},
                        {"program", g.program},
                        {"ok", g.verdict.ok()},
                        {"first_bad", g.verdict.first_bad},
                        {"passes", passes}});
        if (!json)
          fmt::print("  {:<16} {:<28} {}\n", g.recipe, g.program,
                     g.verdict.ok() ? fmt::format("ok, error {:.1e} over {}", worst, fmt::join(compared, ", "))
                                    : fmt::format("FAILED in pass {}: {}", g.verdict.first_bad, g.verdict.why));
      },
      ranks);
  if (json) fmt::print("{}\n", list.dump(2));
  return ok;
}

// A card by itself: are its units in use, does it copy while it computes. What does not hold is in "failures".
Json measure_card(const Backend& backend, int index, int64_t size, bool json) {
  if (backend.name() != "cuda") return {{"failures", Json::array()}};
  const CudaMeasurements m = measure_cuda(backend, {index, 0}, size);
  Json rates = Json::array();
  if (!json) fmt::print("\nproducts of {0} x {0} matrices, achieved and peak TFLOP/s\n", size);
  for (const CudaRate& r : m.rates) {
    rates.push_back({{"type", r.type},
                     {"flops", r.flops},
                     {"peak", r.peak},
                     {"failure", r.failure},
                     {"not_judged", m.not_judged(r)}});
    if (json) continue;
    if (!r.failure.empty())
      fmt::print("  {:<5} {}{}\n", r.type, r.failure, r.peak > 0 ? "" : "  " + m.not_judged(r));
    else
      fmt::print("  {:<5} {:8.4g} of {:8.4g}{}{}\n", r.type, r.flops / 1e12, r.peak / 1e12,
                 r.peak > 0 ? fmt::format("  ({:.0f} %)", 100 * r.flops / r.peak) : "",
                 m.not_judged(r).empty() ? "" : "  " + m.not_judged(r));
  }
  const CudaOverlap& o = m.overlap;
  if (!json)
    fmt::print(
        "copy from the host {:.2f} ms, products {:.2f} ms, together {:.2f} ms: {:.0f} % of the shorter is hidden\n",
        1e3 * o.copy, 1e3 * o.compute, 1e3 * o.both, 100 * o.share());
  const std::vector<std::string> failures = m.failures();
  if (!json)
    for (const std::string& f : failures) fmt::print("  FAILED: {}\n", f);
  return {{"products", rates},
          {"failures", failures},
          {"overlap", {{"copy", o.copy}, {"compute", o.compute}, {"both", o.both}, {"share", o.share()}}}};
}

// Options that mean something for cards alone.
void require_card(const char* option, const std::string& name) {
  if (parse_device_name(name).backend != "cuda")
    throw UserError(fmt::format("{}: expected --device cuda, got {}", option, name), Exit::usage);
}

// The measurements alone.
bool run_card_test(const std::string& name, int64_t product, bool json) {
  const DeviceName device = parse_device_name(name);
  require_device(device);
  const Json card = measure_card(find_backend(device.backend), device.index, product, json);
  if (json) fmt::print("{}\n", card.dump(2));
  return card["failures"].empty();
}

Json train_twins(const DeviceName& device) {
  Json runs = Json::array();
  for (const TrainingCheck& t : selftest_training(find_backend(device.backend), {device.index, 0}))
    runs.push_back({{"recipe", t.recipe},
                    {"ok", t.ok()},
                    {"loss_error", t.loss_error},
                    {"norm_error", t.norm_error},
                    {"update_error", t.update_error},
                    {"drift", t.drift},
                    {"repeats", t.repeats},
                    {"failure", t.failure},
                    {"text", fmt::format("{} steps: {}", t.steps, to_text(t))}});
  return runs;
}

// Almost all of the time of an OpenCL device is its compiler's, which takes one kernel at a time in a process: there
// the training of the twins continues beside the ops, in a process of its own. To be made before a device is opened.
class TwinsTraining {
 public:
  explicit TwinsTraining(const DeviceName& device) : device_(device) {
    if (device.backend != "opencl" || !is_alone() || pipe(ends_) != 0) return;
    std::fflush(nullptr);
    child_ = fork();
    if (child_ != 0) {
      close(ends_[1]);
      return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::string text;
    try {
      text = train_twins(device).dump();
    } catch (const std::exception& e) {
      text = Json{{"error", e.what()}}.dump();
    }
    for (size_t at = 0; at < text.size();) {
      const ssize_t n = write(ends_[1], text.data() + at, text.size() - at);
      if (n <= 0) std::exit(1);
      at += static_cast<size_t>(n);
    }
    std::exit(0);  // and not _exit: the kernels' files are put in order at the end of a process
  }
  ~TwinsTraining() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);  // the parent gives up
    waitpid(child_, nullptr, 0);
  }
  TwinsTraining(const TwinsTraining&) = delete;
  TwinsTraining& operator=(const TwinsTraining&) = delete;

  Json result() {
    if (child_ <= 0) return train_twins(device_);
    std::string text;
    char part[4096];
    for (ssize_t n; (n = read(ends_[0], part, sizeof part)) > 0;) text.append(part, static_cast<size_t>(n));
    close(ends_[0]);
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = 0;
    if (status != 0)
      return failed(fmt::format("the process that trains them ended with {} {}",
                                WIFSIGNALED(status) ? "signal" : "code",
                                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)));
    const Json found = Json::parse(text);
    if (found.is_object()) return failed(found["error"].get<std::string>());
    return found;
  }

 private:
  // A process with threads must not fork: a driver that `auto` has asked already has some.
  static bool is_alone() {
    int threads = 0;
    std::error_code error;
    for (auto i = std::filesystem::directory_iterator("/proc/self/task", error); i != end(i); ++i) ++threads;
    return threads == 1;
  }
  // What takes the place of the recipes' results.
  static Json failed(const std::string& why) {
    return Json::array({{{"recipe", "all"}, {"ok", false}, {"failure", why}, {"text", "FAILED: " + why}}});
  }

  DeviceName device_;
  int ends_[2] = {-1, -1};
  pid_t child_ = 0;
};

bool run_device_test(const std::string& name, const std::string& op, bool ops_only, int64_t product, bool json) {
  const DeviceName device = parse_device_name(name);
  // One op alone is asked for while a kernel is written: then the rest is in the way.
  std::optional<TwinsTraining> training;
  if (op.empty() && !ops_only) training.emplace(device);
  const Backend& backend = find_backend(device.backend);
  require_device(device);
  const ConformanceReport report = run_conformance(backend, {device.index, 0}, op);
  if (report.ops.empty()) {
    std::vector<std::string_view> names;
    for (const OpDef* known : registry().all()) names.push_back(known->name());
    const auto near = did_you_mean(op, names);
    throw UserError(fmt::format("--op {}: no op has that in its name{}; `lathe ops` lists them", op,
                                near ? fmt::format("; did you mean \"{}\"?", *near) : ""),
                    Exit::usage);
  }
  bool ok = report.failed() == 0;
  Json ops = Json::array(), runs = Json::array(), card;
  for (const OpConformance& o : report.ops)
    ops.push_back({{"op", o.op},
                   {"kernels", o.kernels},
                   {"passed", o.passed},
                   {"failed", o.failed},
                   {"declined", o.declined},
                   {"max_error", o.max_error},
                   {"failures", o.failures}});
  if (!json) fmt::print("{}", to_text(report));
  if (training) {
    if (!json) fmt::print("\ntraining of the recipes' tiny twins, against the cpu and a second time\n");
    runs = training->result();
    for (Json& run : runs) {
      ok = ok && run["ok"].get<bool>();
      if (!json) fmt::print("  {:<16} {}\n", run["recipe"].get<std::string>(), run["text"].get<std::string>());
      run.erase("text");
    }
    card = measure_card(backend, device.index, product, json);
    ok = ok && card["failures"].empty();
  }
  if (json)
    fmt::print("{}\n", Json{{"device", report.device},
                            {"passed", report.passed()},
                            {"failed", report.failed()},
                            {"declined", report.declined()},
                            {"ops", ops},
                            {"training", runs},
                            {"card", card}}
                           .dump(2));
  return ok;
}

}  // namespace

void add_selftest(CLI::App& app, int& exit) {
  struct Options {
    std::string device = "cpu", op;
    int64_t product = 4096;
    std::vector<int> ranks;
    bool passes = false, card = false, ops_only = false, json = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd =
      app.add_subcommand("selftest", "Check every op on a device against the reference, or every pass on the recipes");
  auto* device = add_device_option(*cmd, o->device, "every op's samples there");
  auto* op = cmd->add_option("--op", o->op, "Only ops whose name contains this")->check(not_empty());
  auto* product = cmd->add_option("--product", o->product, "cuda: side of the matrices whose products are timed")
                      ->check(whole_number(64, 32768))
                      ->excludes(op);
  auto* ops_only = cmd->add_flag("--ops-only", o->ops_only, "Every op, but no training and no measurement");
  auto* card = cmd->add_flag("--card", o->card, "cuda: only the measurements: tensor cores, copies under computation")
                   ->excludes(op);
  auto* passes = cmd->add_flag("--passes", o->passes,
                               "Prove the passes: the graph before and after each one must compute the same numbers")
                     ->excludes(device)
                     ->excludes(card)
                     ->excludes(product)
                     ->excludes(op);
  cmd->add_option("--ranks", o->ranks, "Prove the passes that divide steps among ranks, for these numbers: 2,3,4")
      ->delimiter(',')
      ->check(whole_number(2, 64))
      ->needs(passes);
  ops_only->excludes(card);
  cmd->add_flag("--json", o->json, "Print the result as JSON");
  cmd->footer(
      "Example: lathe selftest --device opencl; lathe selftest --passes; lathe selftest --passes --ranks 2,3\nExit "
      "code 70 when something does not hold.");
  cmd->callback([o, product, &exit] {
    if (o->card) require_card("--card", o->device);
    if (product->count() > 0) require_card("--product", o->device);
    const bool ok = o->passes ? run_passes_test(o->ranks, o->json)
                    : o->card ? run_card_test(o->device, o->product, o->json)
                              : run_device_test(o->device, o->op, o->ops_only, o->product, o->json);
    if (!ok) exit = static_cast<int>(Exit::internal);
  });
}

}  // namespace lathe::cli
