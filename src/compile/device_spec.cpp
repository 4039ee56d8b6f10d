#include "compile/device_spec.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "backend/backend.h"
#include "backend/cuda/cuda_info.h"
#include "backend/cuda/cuda_site.h"
#include "base/did_you_mean.h"
#include "base/error.h"
#include "recipe/recipe_errors.h"
#include "recipe/recipe_keys.h"
#include "recipe/toml_file.h"

namespace lathe {
namespace {

constexpr size_t kMaxSpecBytes = 64 << 10;
constexpr double kTera = 1e12, kGiga = 1e9;
constexpr std::string_view kSpecKeys[] = {"description", "backend",  "memory",    "largest_allocation",
                                          "bandwidth",   "transfer", "peak.f32",  "peak.tf32",
                                          "peak.bf16",   "peak.f16", "capability"};

std::string_view kind_of(const toml::node& node) {
  if (node.is_boolean()) return "true or false";
  if (node.is_array()) return "a list";
  return node.is_table() ? "a table" : "a date or a time";
}

class Parser {
 public:
  Parser(const std::string& file, DeviceSpec& out) : file_(file), out_(out) {}

  // All values below `table`, each by its dotted key, in the order of the file.
  void read(const toml::table& table) {
    std::vector<Entry> entries;
    collect(table, "", entries);
    std::ranges::sort(entries, {}, [](const Entry& e) {
      const auto& at = e.node->source().begin;
      return std::pair(at.line, at.column);
    });
    for (const auto& [key, node] : entries) {
      line_ = node->source().begin.line;
      if (std::ranges::find(kSpecKeys, key) == std::end(kSpecKeys)) unknown(key);
      if (std::ranges::find(seen_, key) != seen_.end()) fail(key + " is given twice");  // once with a quoted dot
      seen_.push_back(key);
      if (const auto* text = node->as_string())
        text_value(key, text->get());
      else
        number_value(key, *node);
    }
  }

  void finish() {
    line_ = 0;
    for (const char* key : {"backend", "memory", "bandwidth", "peak.f32"})
      if (std::ranges::find(seen_, key) == seen_.end()) fail(fmt::format("{} is missing", key));
    if (out_.backend == "cuda" && out_.capability == 0)
      fail("capability is missing: the compute capability of the card, like 8.0");
    if (out_.backend != "cuda" && out_.capability > 0)
      fail(fmt::format("capability: means nothing for backend = \"{}\"", out_.backend));
  }

 private:
  struct Entry {
    std::string key;
    const toml::node* node;
  };
  static void collect(const toml::table& table, const std::string& prefix, std::vector<Entry>& out) {
    for (const auto& [key, node] : table) {
      const std::string path = prefix + std::string(key.str());
      const toml::table* inner = node.as_table();
      if (inner && !inner->empty())
        collect(*inner, path + ".", out);
      else
        out.push_back({path, &node});
    }
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(line_ > 0 ? fmt::format("{}:{}: {}", file_, line_, what) : fmt::format("{}: {}", file_, what),
                    Exit::bad_recipe);
  }

  [[noreturn]] void unknown(const std::string& key) const {
    const auto near = did_you_mean(key, kSpecKeys);
    fail(near ? fmt::format("unknown key {}; did you mean {}?", shown(key), *near)
              : fmt::format("unknown key {}; known: {}", shown(key), fmt::join(kSpecKeys, ", ")));
  }

  void text_value(const std::string& key, const std::string& value) {
    const auto size = [&] {
      const auto bytes = parse_size(value);
      if (!bytes || bytes->bytes <= 0)
        fail(fmt::format("{}: expected a size like \"40GiB\", got \"{}\"", key, shown(value)));
      return bytes->bytes;
    };
    if (key == "description")
      out_.description = value;
    else if (key == "backend")
      out_.backend = value;
    else if (key == "memory")
      out_.memory = size();
    else if (key == "largest_allocation")
      out_.largest_allocation = size();
    else
      fail(fmt::format("{}: expected a number, got \"{}\"", key, shown(value)));
  }

  void number_value(const std::string& key, const toml::node& node) {
    const bool text = key == "description" || key == "backend" || key == "memory" || key == "largest_allocation";
    if (text) fail(fmt::format("{}: expected a text in quotes, like \"40GiB\"", key));
    if (!node.is_number()) fail(fmt::format("{}: expected a number above 0, got {}", key, kind_of(node)));
    const double value = node.value<double>().value_or(-1);  // none: an integer that no double equals
    if (!(value > 0) || value > 1e9) fail(fmt::format("{}: expected a number above 0, got {}", key, value));
    if (key == "bandwidth")
      out_.bandwidth = value * kGiga;
    else if (key == "transfer")
      out_.transfer = value * kGiga;
    else if (key == "capability")
      out_.capability = capability(value);
    else
      out_.peaks.push_back({key.substr(sizeof("peak.") - 1), value * kTera});
  }

  int capability(double value) const {
    const int tenths = static_cast<int>(std::lround(10 * value));
    if (value > 100 || std::abs(10 * value - tenths) > 1e-6 || tenths < kOldestCapability)
      fail(fmt::format("capability: expected a compute capability of 7.5 or newer, like 8.0, got {}", value));
    return tenths;
  }

  const std::string& file_;
  DeviceSpec& out_;
  std::vector<std::string> seen_;
  uint32_t line_ = 0;  // 0: the file as a whole
};

std::string read_file(const std::string& path) {
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec)) {
    std::vector<std::string_view> names;
    for (const EmbeddedDeviceSpec& t : embedded_device_specs()) names.push_back(t.name);
    const auto near = did_you_mean(path, names);
    throw UserError(fmt::format("--target {}: no such file, and no built-in target; {}known: {}", path,
                                near ? fmt::format("did you mean {}? ", *near) : "", fmt::join(names, ", ")),
                    Exit::missing_input);
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(kMaxSpecBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMaxSpecBytes)
    throw UserError(fmt::format("{}: expected a device spec of at most {} bytes", path, kMaxSpecBytes),
                    Exit::bad_recipe);
  return text;
}

// Kernels of other names widen their operands and compute in f32.
bool uses_matrix_units(const Launch& l) {
  return l.candidate.name.starts_with("cublaslt") || l.candidate.name.starts_with("cudnn");
}

std::string_view arithmetic_of(const Launch& l) {
  if (!uses_matrix_units(l) || l.in.empty()) return "f32";
  switch (l.in[0].dtype) {
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::f32: return tf32_allowed() ? "tf32" : "f32";
    default: return "f32";
  }
}

double peak_of(const DeviceSpec& t, std::string_view type) {
  const auto at = std::ranges::find(t.peaks, type, &DeviceSpecPeak::type);
  return at != t.peaks.end() ? at->flops : type == "f32" ? 0 : peak_of(t, "f32");
}

}  // namespace

double least_seconds(const Program& p, const DeviceSpec& t) {
  double s = 0;
  for (const Launch& l : p.launches)
    s += std::max(l.flops() / peak_of(t, arithmetic_of(l)), (l.cost.bytes_read + l.cost.bytes_written) / t.bandwidth);
  return s;
}

DeviceSpec parse_device_spec(std::string_view text, const std::string& file) {
  DeviceSpec out;
  Parser parser(file, out);
  try {
    parser.read(parse_toml(text, kMaxSpecBytes));
  } catch (const TomlError& e) {
    throw UserError(fmt::format("{}:{}: {}", file, e.line, e.message), Exit::bad_recipe);
  }
  parser.finish();
  return out;
}

DeviceSpec load_device_spec(const std::string& name) {
  for (const EmbeddedDeviceSpec& t : embedded_device_specs())
    if (t.name == name) {
      DeviceSpec out = parse_device_spec(t.text, fmt::format("targets/{}.toml", t.name));
      out.name = name;
      return out;
    }
  DeviceSpec out = parse_device_spec(read_file(name), name);
  out.name = std::filesystem::path(name).stem().string();
  return out;
}

Target target_of_spec(const DeviceSpec& f) {
  Target t = find_backend(f.backend).target({.index = -1, .threads = 0});
  t.name = f.name;
  if (f.capability > 0) set_capability(t, f.capability);
  t.memory = f.memory;
  t.largest_allocation = f.largest_allocation > 0 ? f.largest_allocation : f.memory;
  t.peak_bandwidth = f.bandwidth;
  for (const DeviceSpecPeak& p : f.peaks)
    if (p.type == "f32") t.peak_flops = p.flops;
  return t;
}

}  // namespace lathe
