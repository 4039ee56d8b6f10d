#include "peak/peak_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "backend/kernels/binary_cache.h"

namespace lathe {
namespace {

constexpr size_t kMostPeakBytes = 4096;

// The hash ends the text, so that half a file is no file.
std::string sealed(const std::string& text) { return text + cache_key(text) + "\n"; }

std::string text_of(const std::string& machine, const Peak& p) {
  return fmt::format("lathe peak 1\n{}\n{:.17g} {:.17g}\n", machine, p.flops_per_second, p.bytes_per_second);
}

Peak read_peak(const std::string& path, const std::string& machine) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostPeakBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  const std::string head = fmt::format("lathe peak 1\n{}\n", machine);
  if (!text.starts_with(head)) return {};
  Peak p;
  std::istringstream numbers(text.substr(head.size()));
  numbers >> p.flops_per_second >> p.bytes_per_second;
  const bool good = numbers && std::isfinite(p.flops_per_second) && std::isfinite(p.bytes_per_second) &&
                    p.flops_per_second >= 0 && p.bytes_per_second >= 0 && text == sealed(text_of(machine, p));
  return good ? p : Peak{};
}

}  // namespace

std::string peak_machine(const Backend& backend, const DeviceOptions& options) {
  std::string what = fmt::format("{} {} threads", backend.name(), backend.target(options).threads);
  const auto devices = backend.devices();
  if (const auto i = static_cast<size_t>(options.index); i < devices.size())
    what += fmt::format(", {}, {}", devices[i].description, devices[i].driver);
  std::ranges::replace(what, '\n', ' ');
  return what;
}

Peak keep_best_peak(const std::string& folder, const std::string& machine, const Peak& now) {
  if (folder.empty()) return now;
  const std::string path = fmt::format("{}/{}.peak", folder, cache_key(machine));
  const Peak kept = read_peak(path, machine);
  const Peak best{std::max(now.flops_per_second, kept.flops_per_second),
                  std::max(now.bytes_per_second, kept.bytes_per_second)};
  if (best.flops_per_second > kept.flops_per_second || best.bytes_per_second > kept.bytes_per_second)
    write_cache_file(path, {sealed(text_of(machine, best))});
  return best;
}

}  // namespace lathe
