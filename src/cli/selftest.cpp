#include "train/selftest.h"

#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "cli/command.h"
#include "run/conformance.h"

namespace lathe::cli {
namespace {

using Json = nlohmann::ordered_json;

// Prints a table, or collects it; returns whether all passes keep the numbers.
bool run_passes_test(bool json) {
  Json list = Json::array();
  bool ok = true;
  const Target target = find_backend("cpu").target({});
  if (!json)
    fmt::print(
        "The tiny twin of each recipe before and after each pass that changes it: largest relative error of an output, "
        "in f64.\n"
        "(autodiff: the derivative along a random direction, against central differences of the loss.)\n\n");
  selftest_passes(pipeline(), target, [&](const GraphVerdict& g) {
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
      fmt::print("  {:<16} {:<18} {}\n", g.recipe, g.program,
                 g.verdict.ok() ? fmt::format("ok, error {:.1e} over {}", worst, fmt::join(compared, ", "))
                                : fmt::format("FAILED in pass {}: {}", g.verdict.first_bad, g.verdict.why));
  });
  if (json) fmt::print("{}\n", list.dump(2));
  return ok;
}

bool run_device_test(const std::string& name, const std::string& op, bool json) {
  const DeviceName device = parse_device_name(name);
  const Backend& backend = find_backend(device.backend);
  if (backend.devices().empty())
    throw DeviceError(fmt::format("{}: not available: {}", name, backend.unavailable_reason()));
  const ConformanceReport report = run_conformance(backend, {device.index, 0}, op);
  if (!json) {
    fmt::print("{}", to_text(report));
    return report.failed() == 0;
  }
  Json ops = Json::array();
  for (const OpConformance& o : report.ops)
    ops.push_back({{"op", o.op},
                   {"kernels", o.kernels},
                   {"passed", o.passed},
                   {"failed", o.failed},
                   {"declined", o.declined},
                   {"max_error", o.max_error},
                   {"failures", o.failures}});
  fmt::print("{}\n", Json{{"device", report.device},
                          {"passed", report.passed()},
                          {"failed", report.failed()},
                          {"declined", report.declined()},
                          {"ops", ops}}
                         .dump(2));
  return report.failed() == 0;
}

}  // namespace

void add_selftest(CLI::App& app, int& exit) {
  struct Options {
    std::string device = "cpu", op;
    bool passes = false, json = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd =
      app.add_subcommand("selftest", "Check every op on a device against the reference, or every pass on the recipes");
  auto* device = cmd->add_option("--device", o->device, "cpu, opencl, opencl:N, ref")->check(not_empty());
  auto* op = cmd->add_option("--op", o->op, "Only ops whose name contains this")->check(not_empty());
  cmd->add_flag("--passes", o->passes,
                "Prove the passes: the graph before and after each one must compute the same numbers")
      ->excludes(device)
      ->excludes(op);
  cmd->add_flag("--json", o->json, "Print the result as JSON");
  cmd->footer(
      "Example: lathe selftest --device opencl; lathe selftest --passes\nExit code 70 when something does not hold.");
  cmd->callback([o, &exit] {
    const bool ok = o->passes ? run_passes_test(o->json) : run_device_test(o->device, o->op, o->json);
    if (!ok) exit = static_cast<int>(Exit::internal);
  });
}

}  // namespace lathe::cli
