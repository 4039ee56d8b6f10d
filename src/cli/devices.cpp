#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/devices_ops.h"

namespace lathe::cli {
namespace {

using Json = nlohmann::ordered_json;

Json device_list(bool measure) {
  Json list = Json::array();
  const std::string chosen = auto_device();
  for (const Backend* b : backends()) {
    const auto devices = b->devices();
    if (devices.empty()) {
      list.push_back({{"name", b->name()}, {"available", false}, {"reason", b->unavailable_reason()}});
      continue;
    }
    for (const DeviceInfo& d : devices) {
      if (!d.unusable.empty()) {
        list.push_back({{"name", d.name},
                        {"available", false},
                        {"description", d.description},
                        {"driver", d.driver},
                        {"reason", d.unusable}});
        continue;
      }
      const DeviceName name = parse_device_name(d.name);
      const Target t = b->target({name.index, 0});
      Json types = Json::array();
      for (const DType dt : t.dtypes) types.push_back(to_string(dt));
      Json j{{"name", d.name},           {"available", true},
             {"auto", d.name == chosen}, {"description", d.description},
             {"driver", d.driver},       {"memory", d.memory},
             {"types", types},           {"largest_allocation", t.largest_allocation},
             {"threads", t.threads}};
      if (measure && b->name() != "ref") {
        const Peak p = measure_peak(*b, {name.index, 0});
        j["gemm_gflops"] = p.flops_per_second / 1e9;
        j["bandwidth_gbs"] = p.bytes_per_second / 1e9;
        if (!t.host_memory) {
          const TransferRate rate = measure_transfer(*b, {name.index, 0});
          j["host_to_device_gbs"] = rate.to_device / 1e9;
          j["device_to_host_gbs"] = rate.from_device / 1e9;
        }
      }
      list.push_back(std::move(j));
    }
  }
  return list;
}

void print_device(const Json& d) {
  const auto text = [&](const char* key) { return d.value(key, std::string()); };
  const auto number = [&](const char* key) { return d[key].get<double>(); };
  if (!d["available"].get<bool>()) {
    const std::string what = text("description");
    fmt::print("{:<10} {}not available: {}\n", text("name"), what.empty() ? "" : what + ": ", text("reason"));
    return;
  }
  const std::string driver = text("driver");
  const std::vector<std::string> types = d["types"];
  fmt::print("{:<10} {}{}\n           {}memory {}, types {}\n", text("name"), text("description"),
             d["auto"].get<bool>() ? "; --device auto takes it" : "", driver.empty() ? "" : "driver " + driver + ", ",
             format_bytes(d["memory"].get<int64_t>()), fmt::join(types, " "));
  if (!d.contains("gemm_gflops")) return;
  fmt::print("           measured: GEMM f32 {:.0f} GFLOP/s, memory {:.1f} GB/s", number("gemm_gflops"),
             number("bandwidth_gbs"));
  if (d.contains("host_to_device_gbs"))
    fmt::print(", host to device {:.1f} GB/s, device to host {:.1f} GB/s", number("host_to_device_gbs"),
               number("device_to_host_gbs"));
  fmt::print("\n");
}

void print_targets(bool json) {
  Json list = Json::array();
  for (const EmbeddedDeviceSpec& e : embedded_device_specs()) {
    const DeviceSpec t = load_device_spec(std::string(e.name));
    Json j{{"name", t.name},
           {"description", t.description},
           {"backend", t.backend},
           {"memory", t.memory},
           {"bandwidth_gbs", t.bandwidth / 1e9}};
    std::string peaks;
    for (const DeviceSpecPeak& p : t.peaks) {
      j["peak_tflops"][p.type] = p.flops / 1e12;
      peaks += fmt::format(" {} {:g}", p.type, p.flops / 1e12);
    }
    list.push_back(std::move(j));
    if (!json)
      fmt::print("{:<14} {:<42} {:<7} {:>9} {:>6.0f} GB/s  TFLOP/s:{}\n", t.name, t.description, t.backend,
                 format_bytes(t.memory), t.bandwidth / 1e9, peaks);
  }
  if (json) fmt::print("{}\n", list.dump(2));
}

}  // namespace

void add_devices(CLI::App& app, int&) {
  struct Options {
    bool ops = false, targets = false, json = false, fast = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd = app.add_subcommand(
      "devices", "List devices: driver, memory, types, measured peaks and transfer rates; or which op runs where");
  auto* ops = cmd->add_flag(
      "--ops", o->ops,
      "Support matrix: the kernels of each op on each backend with their types, and the reason where there is "
      "none; measures nothing");
  auto* targets =
      cmd->add_flag("--targets", o->targets, "List the cards that `lathe plan --target` knows")->excludes(ops);
  cmd->add_flag("--no-measure", o->fast, "Skip the measurements")->excludes(targets);
  cmd->add_flag("--json", o->json, "Print the result as JSON");
  cmd->footer("Example: lathe devices --ops");
  cmd->callback([o] {
    if (o->ops) {
      const Json m = op_matrix();
      if (o->json)
        fmt::print("{}\n", m.dump(2));
      else
        print_op_matrix(m);
      return;
    }
    if (o->targets) {
      print_targets(o->json);
      return;
    }
    const Json list = device_list(!o->fast);
    if (o->json) {
      fmt::print("{}\n", list.dump(2));
      return;
    }
    for (const Json& d : list) print_device(d);
  });
}

}  // namespace lathe::cli
