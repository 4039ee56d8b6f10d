#include "train/targets.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "backend/backend.h"
#include "backend/cuda/cuda_info.h"
#include "backend/cuda/cuda_site.h"
#include "base/did_you_mean.h"
#include "base/error.h"
#include "train/recipe_keys.h"

namespace lathe {
namespace {

constexpr size_t kMaxTargetBytes = 64 << 10;
constexpr double kTera = 1e12, kGiga = 1e9;
constexpr std::string_view kTargetKeys[] = {"description", "backend",  "memory",    "largest_allocation",
                                            "bandwidth",   "transfer", "peak.f32",  "peak.tf32",
                                            "peak.bf16",   "peak.f16", "capability"};

std::string_view trimmed(std::string_view s) {
  const size_t first = s.find_first_not_of(" \t\r");
  if (first == s.npos) return "";
  return s.substr(first, s.find_last_not_of(" \t\r") - first + 1);
}

class Parser {
 public:
  Parser(const std::string& file, TargetFile& out) : file_(file), out_(out) {}

  void line(std::string_view text, int number) {
    number_ = number;
    text = trimmed(text);
    if (text.empty() || text.front() == '#') return;
    const size_t equals = text.find('=');
    if (equals == text.npos) fail("expected `key = value`");
    const std::string key(trimmed(text.substr(0, equals)));
    std::string_view value = trimmed(text.substr(equals + 1));
    if (std::ranges::find(seen_, key) != seen_.end()) fail(key + " is given twice");
    seen_.push_back(key);
    if (!value.empty() && value.front() == '"') {
      const size_t end = value.find('"', 1);
      if (end == value.npos) fail(key + ": the text has no closing quote");
      const std::string_view rest = trimmed(value.substr(end + 1));
      if (!rest.empty() && rest.front() != '#') fail(key + ": unexpected text after the closing quote");
      text_value(key, std::string(value.substr(1, end - 1)));
    } else {
      number_value(key, trimmed(value.substr(0, value.find('#'))));
    }
  }

  void finish() {
    number_ = 0;
    for (const char* key : {"backend", "memory", "bandwidth", "peak.f32"})
      if (std::ranges::find(seen_, key) == seen_.end()) fail(fmt::format("{} is missing", key));
    if (out_.backend == "cuda" && out_.capability == 0)
      fail("capability is missing: the compute capability of the card, like 8.0");
    if (out_.backend != "cuda" && out_.capability > 0)
      fail(fmt::format("capability: means nothing for backend = \"{}\"", out_.backend));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(number_ > 0 ? fmt::format("{}:{}: {}", file_, number_, what) : fmt::format("{}: {}", file_, what),
                    Exit::bad_recipe);
  }

  [[noreturn]] void unknown(const std::string& key) const {
    const auto near = did_you_mean(key, kTargetKeys);
    fail(near ? fmt::format("unknown key {}; did you mean {}?", key, *near)
              : fmt::format("unknown key {}; known: {}", key, fmt::join(kTargetKeys, ", ")));
  }

  void text_value(const std::string& key, const std::string& value) {
    const auto size = [&] {
      const auto bytes = parse_size(value);
      if (!bytes || bytes->bytes <= 0) fail(fmt::format("{}: expected a size like \"40GiB\", got \"{}\"", key, value));
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
    else if (std::ranges::find(kTargetKeys, key) != std::end(kTargetKeys))
      fail(fmt::format("{}: expected a number, got \"{}\"", key, value));
    else
      unknown(key);
  }

  void number_value(const std::string& key, std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    if (std::ranges::find(kTargetKeys, key) == std::end(kTargetKeys)) unknown(key);
    if (!whole || !(value > 0) || value > 1e9)
      fail(fmt::format("{}: expected a number above 0, got {}", key, text.empty() ? "nothing" : text));
    if (key == "bandwidth")
      out_.bandwidth = value * kGiga;
    else if (key == "transfer")
      out_.transfer = value * kGiga;
    else if (key == "capability")
      out_.capability = capability(value);
    else if (key.starts_with("peak."))
      out_.peaks.push_back({key.substr(5), value * kTera});
    else
      fail(fmt::format("{}: expected a text in quotes, like \"40GiB\"", key));
  }

  int capability(double value) const {
    const int tenths = static_cast<int>(std::lround(10 * value));
    if (value > 100 || std::abs(10 * value - tenths) > 1e-6 || tenths < kOldestCapability)
      fail(fmt::format("capability: expected a compute capability of 7.5 or newer, like 8.0, got {}", value));
    return tenths;
  }

  const std::string& file_;
  TargetFile& out_;
  std::vector<std::string> seen_;
  int number_ = 0;
};

std::string read_file(const std::string& path) {
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec)) {
    std::vector<std::string_view> names;
    for (const EmbeddedTarget& t : embedded_targets()) names.push_back(t.name);
    const auto near = did_you_mean(path, names);
    throw UserError(fmt::format("--target {}: no such file, and no built-in target; {}known: {}", path,
                                near ? fmt::format("did you mean {}? ", *near) : "", fmt::join(names, ", ")),
                    Exit::missing_input);
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(kMaxTargetBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMaxTargetBytes)
    throw UserError(fmt::format("{}: expected a target file of at most {} bytes", path, kMaxTargetBytes),
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

double peak_of(const TargetFile& t, std::string_view type) {
  const auto at = std::ranges::find(t.peaks, type, &TargetPeak::type);
  return at != t.peaks.end() ? at->flops : type == "f32" ? 0 : peak_of(t, "f32");
}

}  // namespace

double least_seconds(const Program& p, const TargetFile& t) {
  double s = 0;
  for (const Launch& l : p.launches)
    s +=
        std::max(l.flops() / peak_of(t, arithmetic_of(l)), (l.cost.bytes_read + l.cost.bytes_written) / t.bandwidth);
  return s;
}

TargetFile parse_target(std::string_view text, const std::string& file) {
  TargetFile out;
  Parser parser(file, out);
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    parser.line(text.substr(0, end), ++number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  parser.finish();
  return out;
}

TargetFile load_target(const std::string& name) {
  for (const EmbeddedTarget& t : embedded_targets())
    if (t.name == name) {
      TargetFile out = parse_target(t.text, fmt::format("targets/{}.toml", t.name));
      out.name = name;
      return out;
    }
  TargetFile out = parse_target(read_file(name), name);
  out.name = std::filesystem::path(name).stem().string();
  return out;
}

Target planned_target(const TargetFile& f) {
  Target t = find_backend(f.backend).target({.index = -1, .threads = 0});
  t.name = f.name;
  if (f.capability > 0) set_capability(t, f.capability);
  t.memory = f.memory;
  t.largest_allocation = f.largest_allocation > 0 ? f.largest_allocation : f.memory;
  t.peak_bandwidth = f.bandwidth;
  for (const TargetPeak& p : f.peaks)
    if (p.type == "f32") t.peak_flops = p.flops;
  return t;
}

}  // namespace lathe
