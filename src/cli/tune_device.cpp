// lathe bench tune-device: measures the tiles of the device's matrix kernels and keeps the best.

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
  CLI::App* cmd = bench.add_subcommand("tune-device", "Measure tile sizes of the matrix kernels on a device, keep the best");
  cmd->add_option("--device", o->device, "opencl, opencl:N");
  cmd->add_option("--rounds", o->rounds, "Turns over all candidates")->check(CLI::Range(1, 1000));
  cmd->add_option("--seconds", o->seconds, "Compile no further candidates after this time")->check(CLI::NonNegativeNumber);
  cmd->add_flag("--json", o->json, "Print the result as JSON");
  cmd->footer("Example: lathe bench tune-device --device opencl:1\nThe choice is kept beside the compiled kernels.");
  cmd->callback([o] {
    const DeviceName name = parse_device_name(o->device);
    LATHE_USER_CHECK(name.backend == "opencl", "tune-device: expected an opencl device, got {}: it has nothing to tune",
                     o->device);
    const TuneReport r = tune_opencl_device(name.index, o->rounds, o->seconds);
    if (o->json) {
      nlohmann::ordered_json rows = nlohmann::json::array();
      const auto before = std::ranges::find(r.rows, true, &TuneRow::before);
      for (const TuneRow& row : r.rows) rows.push_back({{"tiles", row.tiles}, {"gflops", row.gflops}});
      fmt::print("{}\n", nlohmann::ordered_json{{"device", r.device},
                                               {"before", before->tiles},
                                               {"before_gflops", before->gflops},
                                               {"rows", rows},
                                               {"left_out", r.left_out},
                                               {"stored", r.stored}}
                             .dump(2));
      return;
    }
    fmt::print("{}\n  {:>8}  tiles\n", r.device, "GFLOP/s");
    for (const TuneRow& row : r.rows)
      fmt::print("  {:8.1f}  {}{}\n", row.gflops, row.tiles, row.before ? "  (until now)" : "");
    if (r.left_out > 0) fmt::print("{} candidates were left out for lack of time\n", r.left_out);
    fmt::print("{}\n", r.stored.empty() ? "not stored: set LATHE_CACHE_DIR to a folder that can be written"
                                        : "stored in " + r.stored);
  });
}

}  // namespace lathe::cli
