// The table of backends, and lookup by name.
#include "backend/backend.h"

#include <algorithm>
#include <charconv>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/opencl/opencl_backend.h"
#include "backend/ref/ref_backend.h"

namespace lathe {

std::string_view to_string(Lane lane) {
  switch (lane) {
    case Lane::compute: return "compute";
    case Lane::transfer: return "transfer";
    case Lane::communication: return "communication";
  }
  return "?";
}

KernelTable::KernelTable(std::vector<Row> rows) : rows_(std::move(rows)) {
  std::ranges::stable_sort(rows_, {}, &Row::op);
}

std::span<const KernelTable::Row> KernelTable::candidates(std::string_view op) const {
  // Two searches: clang 14 does not compile the subrange of libstdc++ 12 that std::ranges::equal_range returns.
  const auto begin = std::ranges::lower_bound(rows_, op, {}, &Row::op);
  return {begin, std::ranges::upper_bound(begin, rows_.end(), op, {}, &Row::op)};
}

std::vector<std::string> KernelTable::ops() const {
  std::vector<std::string> names;
  for (const Row& r : rows_)
    if (names.empty() || names.back() != r.op) names.emplace_back(r.op);
  return names;
}

std::span<const Backend* const> backends() {
  // Of several accelerators "auto" takes one of the last backend.
  static const Backend* const table[] = {&ref_backend(), &cpu_backend(), &opencl_backend(), &cuda_backend()};
  return table;
}

namespace {

// Those in host memory are one device; others may have several of a kind, with numbers.
bool has_numbers(const Backend& b) { return &b != &ref_backend() && &b != &cpu_backend(); }

}  // namespace

const Backend& find_backend(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Backend* b : backends()) {
    if (b->name() == name) return *b;
    known.push_back(b->name());
  }
  throw UserError(fmt::format("device: no backend is called \"{}\"; known: {}", name, fmt::join(known, ", ")),
                  Exit::usage);
}

bool is_device_name(std::string_view text) {
  const size_t colon = text.find(':');
  const auto it = std::ranges::find(backends(), text.substr(0, colon), &Backend::name);
  if (colon == text.npos) return text == "auto" || it != backends().end();
  if (it == backends().end() || !has_numbers(**it)) return false;
  const std::string_view index = text.substr(colon + 1);
  return !index.empty() && index.size() <= 3 && std::ranges::all_of(index, [](char c) { return c >= '0' && c <= '9'; });
}

DeviceName parse_device_name(std::string_view text) {
  if (text == "auto") return parse_device_name(auto_device());
  DeviceName name;
  const size_t colon = text.find(':');
  name.backend = std::string(text.substr(0, colon));
  const auto bad = [&] {
    return UserError(fmt::format("device: expected NAME or NAME:INDEX, for example cpu or opencl:0, got \"{}\"", text),
                     Exit::usage);
  };
  if (name.backend.empty()) throw bad();
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), name.index);
    if (error != std::errc{} || end != digits.data() + digits.size() || name.index < 0) throw bad();
  }
  find_backend(name.backend);
  return name;
}

// A processor behind an OpenCL driver is slower than the kernels of `cpu`.
std::string auto_device() {
  for (size_t i = backends().size(); i-- > 0;)
    for (const DeviceInfo& d : backends()[i]->devices())
      if (d.accelerator && d.unusable.empty()) return d.name;
  return "cpu";
}

std::string devices_here() {
  std::string text;
  for (const Backend* b : backends()) {
    if (b->name() == "ref") continue;  // for tests
    for (const DeviceInfo& d : b->devices())
      if (d.unusable.empty())
        text += (text.empty() ? "" : ", ") + d.name + (d.name == "cpu" ? "" : fmt::format(" ({})", d.description));
  }
  return text;
}

void require_device(const DeviceName& name) {
  const Backend& backend = find_backend(name.backend);
  const auto devices = backend.devices();
  std::string problem;
  if (devices.empty())
    problem = fmt::format("{}: not available: {}", name.backend, backend.unavailable_reason());
  else if (name.index >= static_cast<int>(devices.size()))
    problem = fmt::format("{}:{}: no such device", name.backend, name.index);
  else if (const DeviceInfo& d = devices[static_cast<size_t>(name.index)]; !d.unusable.empty())
    problem = fmt::format("{} ({}): {}", d.name, d.description, d.unusable);
  if (problem.empty()) return;
  throw DeviceError(fmt::format("{}; here are: {}; choose one of them with --device, or auto, which takes {}", problem,
                                devices_here(), auto_device()));
}

}  // namespace lathe
