#include "io/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace lathe::io {
namespace {

// Room for letters of 12 to 22 units: on a phone a chart is shown at half of its size, so its letters are larger there.
constexpr double kWidth = 640, kHeight = 330, kLeft = 92, kRight = 28, kTop = 42, kBottom = 56;
constexpr size_t kColours = 8;
constexpr size_t kMostPoints = 1500;  // of one line: more cannot be seen

// Values to places. Log scales show their decades.
struct Axis {
  double low = 0, high = 1, from = 0, to = 1;
  bool log = false;

  double at(double v) const {
    const double t =
        log ? (std::log10(v) - std::log10(low)) / (std::log10(high) - std::log10(low)) : (v - low) / (high - low);
    return from + t * (to - from);
  }
  std::vector<double> ticks() const {
    std::vector<double> out;
    if (log) {
      const int first = static_cast<int>(std::ceil(std::log10(low) - 1e-9));
      const int last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
      const int step = std::max(1, (last - first) / 7 + 1);
      for (int e = first; e <= last; e += step) out.push_back(std::pow(10.0, e));
      return out;
    }
    const double raw = (high - low) / 5, unit = std::pow(10.0, std::floor(std::log10(raw)));
    const double step = unit * (raw / unit < 1.5 ? 1 : raw / unit < 3.5 ? 2 : raw / unit < 7.5 ? 5 : 10);
    for (double v = std::ceil(low / step - 1e-9) * step; v <= high + step * 1e-6; v += step)
      out.push_back(std::abs(v) < step * 1e-9 ? 0 : v);
    return out;
  }
};

Axis fit(double low, double high, double from, double to) {
  if (!(low < high)) {
    const double margin = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= margin;
    high += margin;
  }
  return {low, high, from, to};
}

std::string frame(const Axis& x, const Axis& y, std::string_view x_label, std::string_view y_label) {
  std::string s;
  for (const double v : x.ticks())
    s += fmt::format(
        "<line class='grid' x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}'></line><text x='{0:.1f}' y='{3}' "
        "text-anchor='middle'>{4}</text>",
        x.at(v), kTop, kHeight - kBottom, kHeight - kBottom + 22, short_number(v));
  for (const double v : y.ticks())
    s += fmt::format(
        "<line class='grid' x1='{1}' x2='{2}' y1='{0:.1f}' y2='{0:.1f}'></line><text x='{3}' y='{4:.1f}' "
        "text-anchor='end'>{5}</text>",
        y.at(v), kLeft, kWidth - kRight, kLeft - 8, y.at(v) + 5, short_number(v));
  s += fmt::format("<text x='{}' y='{}' text-anchor='middle'>{}</text>", (kLeft + kWidth - kRight) / 2, kHeight - 6,
                   escape_html(x_label));
  s += fmt::format("<text x='4' y='18'>{}</text>", escape_html(y_label));
  return s;
}

std::string picture(double width, double height, const std::string& body, std::string_view label,
                    std::string_view attributes = "") {
  return fmt::format("<svg {}{}viewBox='0 0 {} {}' role='img' aria-label='{}'>{}</svg>", attributes,
                     attributes.empty() ? "" : " ", width, height, escape_html(label), body);
}

std::string legend(const std::vector<std::string>& names) {
  std::string s = "<p class=legend>";
  for (size_t i = 0; i < names.size(); ++i)
    if (!names[i].empty()) s += fmt::format("<span><i class=b{}></i>{}</span> ", i % kColours, escape_html(names[i]));
  return s + "</p>";
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

std::string short_number(double v) {
  const double a = std::abs(v);
  static constexpr struct {
    double unit;
    const char* letter;
  } kUnits[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [unit, letter] : kUnits)
    if (a >= unit && a < 1e15) return fmt::format("{:.3g}{}", v / unit, letter);
  return fmt::format("{:.3g}", v);
}

namespace {

struct Drawn {
  std::string svg;  // empty: no finite point
  std::vector<std::string> names;
};

Drawn draw_lines(const LineChart& c, std::string_view attributes) {
  double x_low = std::numeric_limits<double>::infinity(), x_high = -x_low, y_low = x_low, y_high = -x_low;
  const auto drawn = [&](const Line& l, size_t i) {
    return std::isfinite(l.x[i]) && std::isfinite(l.y[i]) && (!c.log_x || l.x[i] > 0);
  };
  for (const Line& l : c.lines) {
    LATHE_CHECK(l.x.size() == l.y.size(), "{}: {} places, {} values", l.name, l.x.size(), l.y.size());
    for (size_t i = 0; i < l.x.size(); ++i) {
      if (!drawn(l, i)) continue;
      x_low = std::min(x_low, l.x[i]), x_high = std::max(x_high, l.x[i]);
      y_low = std::min(y_low, l.y[i]), y_high = std::max(y_high, l.y[i]);
    }
  }
  if (!(x_low <= x_high)) return {};
  Axis x = fit(x_low, x_high, kLeft, kWidth - kRight);
  if (c.log_x) x = {x_low, x_low < x_high ? x_high : 10 * x_low, kLeft, kWidth - kRight, true};
  const Axis y = fit(y_low, y_high, kHeight - kBottom, kTop);
  std::string s = frame(x, y, c.x_label, c.y_label);
  std::vector<std::string> names;
  const bool scatter = !std::ranges::all_of(c.lines, &Line::joined);  // the last point is one like the others
  for (size_t k = 0; k < c.lines.size(); ++k) {
    const Line& l = c.lines[k];
    names.emplace_back();
    std::string points;
    size_t count = 0, last = 0;
    const size_t step = l.x.size() / kMostPoints + 1;
    for (size_t i = 0; i < l.x.size(); i += step) {
      if (!drawn(l, i)) continue;
      points += fmt::format("{:.1f},{:.1f} ", x.at(l.x[i]), y.at(l.y[i]));
      ++count, last = i;
    }
    if (count == 0) continue;
    names.back() = l.name;
    if (l.joined) s += fmt::format("<polyline class='line s{}' points='{}'></polyline>", k % kColours, points);
    if (l.joined ? count <= 60 && !scatter : true)
      for (size_t i = 0; i < l.x.size(); i += step)
        if (drawn(l, i))
          s += fmt::format("<circle class='f{}' cx='{:.1f}' cy='{:.1f}' r='3'><title>{} {}: {}</title></circle>",
                           k % kColours, x.at(l.x[i]), y.at(l.y[i]), escape_html(c.x_label), short_number(l.x[i]),
                           short_number(l.y[i]));
    if (scatter) continue;
    names.back() = fmt::format("{}{}", l.name.empty() ? "" : l.name + ", last: ", short_number(l.y[last]));
  }
  for (const ChartMark& m : c.marks) {
    if (!(m.x >= x.low) || !(m.x <= x.high)) continue;
    const double at = x.at(m.x);
    const bool left = at > (kLeft + kWidth) / 2;
    s += fmt::format(
        "<line class='mark' x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}'></line><text x='{3:.1f}' y='{4}' "
        "text-anchor='{5}'>{6}</text>",
        at, kTop, kHeight - kBottom, left ? at - 5 : at + 5, kTop + 16, left ? "end" : "start", escape_html(m.text));
  }
  return {picture(kWidth, kHeight, s, c.y_label, attributes.empty() ? "class=chart" : attributes), std::move(names)};
}

}  // namespace

std::string line_chart(const LineChart& c) {
  const Drawn d = draw_lines(c, "");
  return d.svg.empty() ? "" : d.svg + legend(d.names);
}

std::string svg_file(const LineChart& c) {
  constexpr std::string_view kStyle =
      "text{fill:#555;font:12px sans-serif}.grid{stroke:#ddd}.mark{stroke:#222;stroke-dasharray:3 3}"
      ".line{fill:none;stroke-width:1.8;stroke-linejoin:round}";
  static constexpr std::string_view kSeries[kColours] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                         "#b8860b", "#56b4e9", "#7a5195", "#666666"};
  const Drawn d = draw_lines(
      c, fmt::format("xmlns='http://www.w3.org/2000/svg' width='{}' height='{}'", 1.5 * kWidth, 1.5 * kHeight));
  std::string text = d.svg;
  const size_t begin = text.find('>');
  if (begin == text.npos) return text;
  std::string keys;  // to the right: losses fall
  for (size_t i = 0; c.lines.size() > 1 && i < d.names.size(); ++i)
    if (!d.names[i].empty())
      keys += fmt::format(
          "<rect class='f{}' x='{}' y='{}' width='10' height='10'></rect><text x='{}' y='{}' "
          "text-anchor='end'>{}</text>",
          i % kColours, kWidth - kRight - 18, kTop + 8 + 16 * static_cast<double>(i), kWidth - kRight - 24,
          kTop + 17 + 16 * static_cast<double>(i), escape_html(d.names[i]));
  text.insert(text.rfind("</svg>"), keys);
  std::string style{kStyle};
  for (size_t i = 0; i < kColours; ++i) style += fmt::format(".s{0}{{stroke:{1}}}.f{0}{{fill:{1}}}", i, kSeries[i]);
  text.insert(begin + 1, fmt::format("<style>{}</style><rect width='100%' height='100%' fill='#fff'></rect>", style));
  return text;
}

std::string stack_chart(const StackChart& c) {
  LATHE_CHECK(c.names.size() == c.values.size());
  if (c.values.empty() || c.values[0].empty()) return "";
  const size_t n = c.values[0].size();
  std::vector<double> top(n, 0);
  for (const auto& v : c.values) {
    LATHE_CHECK(v.size() == n);
    for (size_t i = 0; i < n; ++i) top[i] += v[i];
  }
  const size_t peak = static_cast<size_t>(std::ranges::max_element(top) - top.begin());
  const Axis x = fit(0, static_cast<double>(n), kLeft, kWidth - kRight);
  const Axis y = fit(0, top[peak] > 0 ? top[peak] * 1.05 : 1, kHeight - kBottom, kTop);
  std::string s = frame(x, y, c.x_label, c.y_label);
  // Drawn from the highest stack down: each series covers all below its upper edge.
  const size_t step = n / kMostPoints + 1;
  for (size_t k = c.values.size(); k-- > 0;) {
    std::string points = fmt::format("{:.1f},{:.1f} ", x.at(0), y.at(0));
    for (size_t i = 0; i < n; i += step) {
      double height = 0;  // of the largest stack of this step
      for (size_t j = i; j < std::min(n, i + step); ++j) height = std::max(height, top[j]);
      points += fmt::format("{0:.1f},{2:.1f} {1:.1f},{2:.1f} ", x.at(static_cast<double>(i)),
                            x.at(static_cast<double>(std::min(n, i + step))), y.at(height));
    }
    points += fmt::format("{:.1f},{:.1f}", x.at(static_cast<double>(n)), y.at(0));
    s += fmt::format("<polygon class='f{}' points='{}'></polygon>", k % kColours, points);
    for (size_t i = 0; i < n; ++i) top[i] -= c.values[k][i];
  }
  s += fmt::format("<line class='mark' x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}'></line>",
                   x.at(static_cast<double>(peak) + 0.5), kTop, kHeight - kBottom);
  return picture(kWidth, kHeight, s, c.y_label, "class=chart") + legend(c.names);
}

std::string roofline_chart(const Roofline& r) {
  if (!(r.peak_flops > 0) || !(r.peak_bandwidth > 0)) return "";
  const double ridge = r.peak_flops / r.peak_bandwidth;
  Axis x{ridge / 1e3, ridge * 100, kLeft, kWidth - kRight, true};
  Axis y{r.peak_flops / 1e4, r.peak_flops * 2, kHeight - kBottom, kTop, true};
  double all = 0;
  for (const auto& p : r.points) all += p.seconds;
  std::string s = frame(x, y, "flop per byte", "flop/s");
  const double low = r.peak_bandwidth * x.low;
  s += fmt::format("<polyline class='line roof' points='{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}'></polyline>",
                   low >= y.low ? x.at(x.low) : x.at(y.low / r.peak_bandwidth), y.at(std::max(low, y.low)), x.at(ridge),
                   y.at(r.peak_flops), x.at(x.high), y.at(r.peak_flops));
  for (const auto& p : r.points) {
    if (!(p.seconds > 0) || !(p.bytes > 0)) continue;
    const double intensity = std::clamp(p.flops / p.bytes, x.low, x.high);
    const double rate = std::clamp(p.flops / p.seconds, y.low, y.high);
    s += fmt::format(
        "<circle class='dot' cx='{:.1f}' cy='{:.1f}' r='{:.1f}'><title>{}\n{:.1f} us, {} flop/s, {} "
        "B/s</title></circle>",
        x.at(intensity), y.at(rate), 2.5 + 18 * std::sqrt(p.seconds / all), escape_html(p.name), 1e6 * p.seconds,
        short_number(p.flops / p.seconds), short_number(p.bytes / p.seconds));
  }
  return picture(kWidth, kHeight, s, "roofline", "class=chart");
}

std::string confusion_chart(const std::vector<std::string>& labels, const std::vector<int64_t>& counts) {
  const size_t n = labels.size();
  LATHE_CHECK(counts.size() == n * n);
  constexpr double kSide = 440, kEdge = 84;
  size_t longest = 1;
  for (const std::string& label : labels) longest = std::max(longest, label.size());
  const double below = 24 + 5.6 * static_cast<double>(std::min<size_t>(longest, 12));  // letters of 15, slanted
  const double cell = (kSide - kEdge) / static_cast<double>(std::max<size_t>(n, 1));
  std::string s;
  for (size_t row = 0; row < n; ++row) {
    int64_t sum = 0;
    for (size_t column = 0; column < n; ++column) sum += counts[row * n + column];
    const double y = static_cast<double>(row) * cell, mid = y + cell / 2 + 4;
    if (n <= 40) {
      s += fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{}</text>", kEdge - 6, mid, escape_html(labels[row]));
      s += fmt::format("<text transform='translate({:.1f} {}) rotate(-50)' text-anchor='end'>{}</text>",
                       kEdge + y + cell / 2 + 4, kSide - kEdge + 14, escape_html(labels[row]));
    }
    for (size_t column = 0; column < n; ++column) {
      const int64_t count = counts[row * n + column];
      const double share = sum > 0 ? static_cast<double>(count) / static_cast<double>(sum) : 0;
      const double x = kEdge + static_cast<double>(column) * cell;
      s += fmt::format(
          "<rect class='{}' fill-opacity='{:.3f}' x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}'><title>{} taken "
          "for {}: {} "
          "({:.1f} %)</title></rect>",
          row == column ? "right" : "wrong", std::sqrt(share), x, y, cell, cell, escape_html(labels[row]),
          escape_html(labels[column]), count, 100 * share);
      if (n <= 12 && count > 0)
        s += fmt::format("<text class='count' x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>", x + cell / 2, mid,
                         count);
    }
  }
  return picture(kSide, kSide - kEdge + below, s, "confusion matrix");
}

}  // namespace lathe::io
