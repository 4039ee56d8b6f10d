#include "io/page/svg_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace lathe::io {
namespace {

struct NumberUnit {
  double unit;
  const char* letter;
};
constexpr NumberUnit kNumberUnits[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
constexpr double kNoUnit = 1e15;                            // and above: with an exponent
constexpr double kSmallNumber = 1e-3, kSmallStep = 0.9e-5;  // below both: with an exponent

int decimal_place(double v) { return static_cast<int>(std::floor(std::log10(v) + 1e-9)); }

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Of a character, by its first byte.
double letter_width(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte >= 0xe1) return 1;  // from U+1000 on: most of them are as wide as high
  if (byte >= 0x80) return 0.65;
  if (std::string_view("ijl.,:;'|!()[] ").find(c) != std::string_view::npos) return 0.33;
  if (std::string_view("mwMW%@+=<>~").find(c) != std::string_view::npos) return 0.92;
  return c >= 'A' && c <= 'Z' ? 0.72 : 0.64;
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  return out;
}

std::string readable_text(const std::string& bytes) {
  using nlohmann::json;
  std::string text = json::parse(json(bytes).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') c = ' ';
  return text;
}

std::string short_number(double v, int digits) {
  const double a = std::abs(v);
  const double rounds_up = 1 - 0.5 * std::pow(10.0, -digits);  // 999.9 is 1k
  for (const auto& [unit, letter] : kNumberUnits)
    if (a >= unit * rounds_up && a < kNoUnit) return fmt::format("{:.{}g}{}", v / unit, digits, letter);
  return fmt::format("{:.{}g}", v, digits);
}

std::string tick_number(double v, double step) {
  if (!(step > 0) || !std::isfinite(step)) return short_number(v, 6);
  const double a = std::abs(v);
  if (a < step * 1e-6) return "0";
  if (a >= kNoUnit || (a < kSmallNumber && step < kSmallStep))
    return fmt::format("{:.{}e}", v, std::clamp(decimal_place(a) - decimal_place(step), 0, 15));
  const NumberUnit* u = std::ranges::find_if(kNumberUnits, [&](const NumberUnit& n) { return a >= n.unit - step / 2; });
  const bool plain = u == std::end(kNumberUnits);
  const int decimals = std::clamp(-decimal_place(step / (plain ? 1 : u->unit)), 0, 15);
  std::string text = fmt::format("{:.{}f}", plain ? v : v / u->unit, decimals);
  // 1.0k and 1.5k are 1k and 1.5k: zeros alone carry nothing.
  if (const size_t point = text.find('.'); point != text.npos && text.find_first_not_of('0', point + 1) == text.npos)
    text.resize(point);
  return plain ? text : text + u->letter;
}

double text_width(std::string_view text) {
  double sum = 0;
  for (const char c : text)
    if (!continues(c)) sum += letter_width(c);
  return sum;
}

std::string shortened(std::string_view text, double most) {
  if (text_width(text) <= most) return std::string(text);
  constexpr double kEllipsis = 1;
  double sum = kEllipsis;
  size_t end = 0;
  while (end < text.size() && sum + letter_width(text[end]) <= most) {
    sum += letter_width(text[end++]);
    while (end < text.size() && continues(text[end])) ++end;
  }
  return std::string(text.substr(0, end)) + "…";
}

}  // namespace lathe::io
