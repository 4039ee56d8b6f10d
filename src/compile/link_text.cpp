#include "compile/link_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <span>
#include <utility>

namespace lathe {
namespace {

struct Unit {
  std::string_view name;
  double factor;  // to seconds, or to bytes per second
};
constexpr Unit kLatencies[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}};
constexpr Unit kBandwidths[] = {{"kbit/s", 1e3 / 8}, {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8},
                                {"kB/s", 1e3},       {"MB/s", 1e6},       {"GB/s", 1e9}};

// A number and one of the units, with a space between them or none.
std::optional<double> parse(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number < 0 || text.front() == '-') return std::nullopt;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const Unit& u : units)
    if (unit == u.name) return number * u.factor;
  return std::nullopt;
}

}  // namespace

std::string link_text(const Link& l) {
  const auto number = [](double v) { return fmt::format("{:.{}f}", v, v < 9.95 ? 1 : 0); };
  return (l.latency < 1e-3 ? number(1e6 * l.latency) + " us" : number(1e3 * l.latency) + " ms") + ", " +
         (l.bandwidth < 1e9 ? number(1e-6 * l.bandwidth) + " MB/s" : number(1e-9 * l.bandwidth) + " GB/s");
}

std::optional<Link> parse_link(std::string_view text) {
  const size_t comma = text.find(',');
  if (comma == text.npos) return std::nullopt;
  std::string_view a = text.substr(0, comma), b = text.substr(comma + 1);
  if (b.starts_with(' ')) b.remove_prefix(1);
  for (int order = 0; order < 2; ++order, std::swap(a, b)) {
    const auto latency = parse(a, kLatencies), bandwidth = parse(b, kBandwidths);
    if (latency && bandwidth && *bandwidth > 0) return Link{*latency, *bandwidth};
  }
  return std::nullopt;
}

}  // namespace lathe
