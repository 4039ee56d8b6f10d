// lathe bench tune-device: measures the tiles of the device's heavy kernels and keeps the best.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace lathe::cli {
void add_tune_device(CLI::App& bench) {
  struct Options {
    std::string device = "opencl";
    int rounds = 5;
    double seconds = 600;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd = bench.add_subcommand(
      "tune-device", "Measure tile sizes of products, attention and loops on a device, keep the best");
  cmd->add_option("--device", o->device, "opencl, opencl:N");
  cmd->add_option("--rounds", o->rounds, "Turns over all candidates")->check(whole_number(1, 1000));
  cmd->add_option("--seconds", o->seconds, "Compile no further candidates after this time")
      ->check(CLI::NonNegativeNumber);
  cmd->add_flag("--json", o->json, "Print the result as JSON");
  cmd->footer("Example: lathe bench tune-device --device opencl:1\nThe choice is kept beside the compiled kernels.");
  cmd->callback([o] {
    const DeviceName name = parse_device_name(o->device);
    LATHE_USER_CHECK(name.backend == "opencl", "tune-device: expected an opencl device, got {}: it has nothing to tune",
                     o->device);
    const TuneReport r = tune_opencl_device(name.index, o->rounds, o->seconds);
    if (o->json) {
      nlohmann::ordered_json parts = nlohmann::json::array();
      for (const TunePart& p : r.parts) {
        const auto before = std::ranges::find(p.rows, true, &TuneRow::before);
        const auto taken = std::ranges::find(p.rows, true, &TuneRow::taken);
        nlohmann::ordered_json rows = nlohmann::json::array();
        for (const TuneRow& row : p.rows) rows.push_back({{"tiles", row.tiles}, {"rate", row.rate}});
        parts.push_back({{"part", p.name},
                         {"unit", p.unit},
                         {"before", before->tiles},
                         {"before_rate", before->rate},
                         {"taken", taken->tiles},
                         {"rows", rows},
                         {"left_out", p.left_out}});
      }
      fmt::print("{}\n", nlohmann::ordered_json{{"device", r.device}, {"parts", parts}, {"stored", r.stored}}.dump(2));
      return;
    }
    fmt::print("{}\n", r.device);
    for (const TunePart& p : r.parts) {
      fmt::print("  {:>8}  {}\n", p.unit, p.name);
      for (const TuneRow& row : p.rows)
        fmt::print("  {:8.1f}  {}{}\n", row.rate, row.tiles,
                   row.before && row.taken ? "  (kept)"
                   : row.before            ? "  (until now)"
                   : row.taken             ? "  (from now on)"
                                           : "");
      if (p.left_out > 0) fmt::print("            {} candidates were left out for lack of time\n", p.left_out);
    }
    fmt::print("{}\n", r.stored.empty() ? "not stored: set LATHE_CACHE_DIR to a folder that can be written"
                                        : "stored in " + r.stored);
  });
}

}  // namespace lathe::cli
