#include "io/page/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"

namespace lathe::io {
namespace {

// Room for letters of 12 to 22 units: on a phone a chart is shown at half of its size, so its letters are larger there.
constexpr double kWidth = 640, kHeight = 330, kLeast = 92, kRight = 28, kTop = 42, kBottom = 56;
constexpr double kLargestLetter = 21;
// Of lines that have a colour for the second time, the third, ...: drawn, gap, ...
constexpr std::string_view kDashes[] = {"", "7 3", "2 3", "10 3 2 3", "14 4", "5 6", "7 3 2 3 2 3", "1 5"};
constexpr size_t kMostPoints = 1500;  // of one line: more cannot be seen

// Values to places. Log scales show their decades.
struct Axis {
  double low = 0, high = 1, from = 0, to = 1;
  bool log = false;
  bool single = false;  // one value, in the middle

  double at(double v) const {
    const double t =
        log ? (std::log10(v) - std::log10(low)) / (std::log10(high) - std::log10(low)) : (v - low) / (high - low);
    return from + t * (to - from);
  }
  double step() const {  // between ticks; 0: of decades, or one tick
    if (log || single) return 0;
    const double raw = (high - low) / 5, unit = std::pow(10.0, std::floor(std::log10(raw)));
    return unit * (raw / unit < 1.5 ? 1 : raw / unit < 3.5 ? 2 : raw / unit < 7.5 ? 5 : 10);
  }
  std::vector<double> ticks() const {
    std::vector<double> out;
    if (single) return {low + (high - low) / 2};
    if (log) {
      const int first = static_cast<int>(std::ceil(std::log10(low) - 1e-9));
      const int last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
      const int every = std::max(1, (last - first) / 7 + 1);
      for (int e = first; e <= last; e += every) out.push_back(std::pow(10.0, e));
      return out;
    }
    const double apart = step();
    for (double v = std::ceil(low / apart - 1e-9) * apart; v <= high + apart * 1e-6; v += apart)
      out.push_back(std::abs(v) < apart * 1e-9 ? 0 : v);
    return out;
  }
  std::string label(double v) const { return tick_number(v, step()); }
  double widest_label() const {
    double most = 0;
    for (const double v : ticks()) most = std::max(most, text_width(label(v)));
    return most;
  }
};

// Values that differ by less than this part of them are one value that was rounded.
constexpr double kSame = 1e-9;

Axis fit(double low, double high, double from, double to) {
  if (high - low > kSame * std::max(std::abs(low), std::abs(high))) return {low, high, from, to};
  const double margin = low == 0 ? 1 : std::abs(low) * 0.1;
  return {low - margin, high + margin, from, to, false, true};
}

// Room to the left for the numbers of an axis.
double left_of(const Axis& y) { return std::max(kLeast, 14 + kLargestLetter * y.widest_label()); }

// The marks of a horizontal axis, from one height to another, with their numbers below.
std::string marks_along(const Axis& x, double top, double bottom) {
  std::string s;
  const std::vector<double> marks = x.ticks();
  // Long numbers of neighbours would run into each other.
  const double between = marks.size() > 1 ? x.at(marks[1]) - x.at(marks[0]) : kWidth;
  const double wide = kLargestLetter * x.widest_label();
  const auto every = static_cast<size_t>(std::max(1.0, std::ceil((wide + 8) / between)));
  for (size_t i = 0; i < marks.size(); ++i) {
    const double at = x.at(marks[i]);
    s += fmt::format("<line class='grid' x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}'></line>", at, top, bottom);
    if (i % every != 0) continue;
    const bool end = at + wide / 2 > kWidth;
    s += fmt::format("<text x='{:.1f}' y='{}' text-anchor='{}'>{}</text>", end ? kWidth - 2 : at, bottom + 22,
                     end ? "end" : "middle", x.label(marks[i]));
  }
  return s;
}

std::string frame(const Axis& x, const Axis& y, std::string_view x_label, std::string_view y_label) {
  std::string s = marks_along(x, kTop, kHeight - kBottom);
  for (const double v : y.ticks())
    s += fmt::format(
        "<line class='grid' x1='{1:.1f}' x2='{2}' y1='{0:.1f}' y2='{0:.1f}'></line><text x='{3:.1f}' y='{4:.1f}' "
        "text-anchor='end'>{5}</text>",
        y.at(v), x.from, kWidth - kRight, x.from - 8, y.at(v) + 5, y.label(v));
  s += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{}</text>", (x.from + kWidth - kRight) / 2,
                   kHeight - 6, escape_html(x_label));
  s += fmt::format("<text x='4' y='18'>{}</text>", escape_html(y_label));
  return s;
}

std::string picture(double width, double height, const std::string& body, std::string_view label,
                    std::string_view attributes = "") {
  return fmt::format("<svg {}{}viewBox='0 0 {} {}' role='img' aria-label='{}'>{}</svg>", attributes,
                     attributes.empty() ? "" : " ", width, height, escape_html(label), body);
}

// "s3 d1": the colour of a series, after the last one with dashes.
std::string series(char kind, size_t i) {
  const size_t dashes = i / kChartColours % std::size(kDashes);
  return fmt::format("{}{}{}", kind, i % kChartColours, dashes == 0 ? "" : fmt::format(" d{}", dashes));
}

std::string legend(const std::vector<std::string>& names) {
  std::string s = "<p class=legend>";
  for (size_t i = 0; i < names.size(); ++i)
    if (!names[i].empty())
      s += fmt::format("<span><i class='{}'></i>{}</span> ", series('b', i), escape_html(names[i]));
  return s + "</p>";
}

struct Drawn {
  std::string body;  // empty: no finite point
  std::vector<std::string> names = {};
};

Drawn draw_lines(const LineChart& c) {
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
  const Axis y = fit(y_low, y_high, kHeight - kBottom, kTop);
  Axis x = fit(x_low, x_high, left_of(y), kWidth - kRight);
  if (c.log_x) x = {x_low, x_low < x_high ? x_high : 10 * x_low, x.from, x.to, true};
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
    const std::string name = escape_html(l.name);
    if (l.joined)
      s += fmt::format("<polyline class='line {}' points='{}'><title>{}</title></polyline>", series('s', k), points,
                       name);
    if (l.joined ? count <= 60 && !scatter : true)
      for (size_t i = 0; i < l.x.size(); i += step)
        if (drawn(l, i))
          s += fmt::format(
              "<circle class='f{}' cx='{:.1f}' cy='{:.1f}' r='3'><title>{}{}{} {:.6g}: {:.6g}</title></circle>",
              k % kChartColours, x.at(l.x[i]), y.at(l.y[i]), name, name.empty() ? "" : ", ", escape_html(c.x_label),
              l.x[i], l.y[i]);
    if (scatter || !c.last_values) continue;
    names.back() = fmt::format("{}{}", l.name.empty() ? "" : l.name + ", last: ", short_number(l.y[last], 5));
  }
  for (const ChartMark& m : c.marks) {
    if (!(m.x >= x.low) || !(m.x <= x.high)) continue;
    const double at = x.at(m.x);
    const bool left = at > (x.from + kWidth) / 2;
    s += fmt::format(
        "<line class='mark' x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}'></line><text x='{3:.1f}' y='{4}' "
        "text-anchor='{5}'>{6}</text>",
        at, kTop, kHeight - kBottom, left ? at - 5 : at + 5, kTop + 16, left ? "end" : "start", escape_html(m.text));
  }
  return {std::move(s), std::move(names)};
}

// The names of lines as text of a file, in columns below its chart.
struct Keys {
  std::string body;
  double height = 0;
};

Keys keys_below(const std::vector<std::string>& names) {
  constexpr double kLetter = 12, kRow = 18, kSample = 30, kGap = 16;
  std::vector<size_t> shown;
  double widest = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    shown.push_back(i);
    widest = std::max(widest, kLetter * text_width(names[i]));
  }
  const double room = kWidth - 2 * kGap;
  const auto columns = static_cast<size_t>(std::max(1.0, std::floor(room / (widest + kSample + kGap))));
  const size_t rows = (shown.size() + columns - 1) / columns;
  Keys keys;
  for (size_t k = 0; k < shown.size(); ++k) {
    const double x = kGap + room / static_cast<double>(columns) * static_cast<double>(k / rows);
    const double y = kHeight + kRow * (static_cast<double>(k % rows) + 0.5);
    keys.body += fmt::format(
        "<line class='line {}' x1='{:.1f}' x2='{:.1f}' y1='{}' y2='{}'></line><text x='{:.1f}' y='{}'>{}</text>",
        series('s', shown[k]), x, x + kSample - 6, y, y, x + kSample, y + 4,
        escape_html(shortened(names[shown[k]], (room - kSample) / kLetter)));
  }
  keys.height = kRow * static_cast<double>(rows) + kGap / 2;
  return keys;
}

}  // namespace

std::string chart_style() {
  std::string style;
  for (size_t i = 1; i < std::size(kDashes); ++i) {
    style += fmt::format(".d{}{{stroke-dasharray:{}}}", i, kDashes[i]);
    std::string stops;  // the same dashes for a key, which is no line
    double at = 0;
    bool ink = true;
    for (size_t from = 0; from < kDashes[i].size(); ink = !ink) {
      const size_t to = std::min(kDashes[i].find(' ', from), kDashes[i].size());
      const double next = at + std::stod(std::string(kDashes[i].substr(from, to - from)));
      stops += fmt::format(",{} {}px {}px", ink ? "#000" : "#0000", at, next);
      at = next;
      from = to + 1;
    }
    style += fmt::format(
        "i.d{0}{{-webkit-mask:repeating-linear-gradient(90deg{1});mask:repeating-linear-gradient(90deg{1})}}", i,
        stops);
  }
  return style;
}

std::string line_chart(const LineChart& c) {
  const Drawn d = draw_lines(c);
  return d.body.empty() ? "" : picture(kWidth, kHeight, d.body, c.y_label, "class=chart") + legend(d.names);
}

std::string svg_file(const LineChart& c) {
  constexpr std::string_view kStyle =
      "text{fill:#555;font:12px sans-serif}.grid{stroke:#ddd}.mark{stroke:#222;stroke-dasharray:3 3}"
      ".line{fill:none;stroke-width:1.8;stroke-linejoin:round}";
  static constexpr std::string_view kSeries[kChartColours] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                              "#b8860b", "#56b4e9", "#7a5195", "#666666"};
  const Drawn d = draw_lines(c);
  if (d.body.empty()) return "";
  const Keys keys = c.lines.size() > 1 ? keys_below(d.names) : Keys{};
  std::string style{kStyle};
  for (size_t i = 0; i < kChartColours; ++i)
    style += fmt::format(".s{0}{{stroke:{1}}}.f{0}{{fill:{1}}}", i, kSeries[i]);
  for (size_t i = 1; i < std::size(kDashes); ++i) style += fmt::format(".d{}{{stroke-dasharray:{}}}", i, kDashes[i]);
  const double height = kHeight + keys.height;
  return picture(kWidth, height,
                 fmt::format("<style>{}</style><rect width='100%' height='100%' fill='#fff'></rect>{}{}", style, d.body,
                             keys.body),
                 c.y_label,
                 fmt::format("xmlns='http://www.w3.org/2000/svg' width='{}' height='{}'", 1.5 * kWidth, 1.5 * height));
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
  const Axis y = fit(0, top[peak] > 0 ? top[peak] * 1.05 : 1, kHeight - kBottom, kTop);
  const Axis x = fit(0, static_cast<double>(n), left_of(y), kWidth - kRight);
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
    s += fmt::format("<polygon class='f{}' points='{}'><title>{}</title></polygon>", k % kChartColours, points,
                     escape_html(c.names[k]));
    for (size_t i = 0; i < n; ++i) top[i] -= c.values[k][i];
  }
  s += fmt::format("<line class='mark' x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}'></line>",
                   x.at(static_cast<double>(peak) + 0.5), kTop, kHeight - kBottom);
  return picture(kWidth, kHeight, s, c.y_label, "class=chart") + legend(c.names);
}

std::string roofline_chart(const Roofline& r) {
  if (!(r.peak_flops > 0) || !(r.peak_bandwidth > 0)) return "";
  const double ridge = r.peak_flops / r.peak_bandwidth;
  const Axis x{ridge / 1e3, ridge * 100, kLeast, kWidth - kRight, true};
  const Axis y{r.peak_flops / 1e5, r.peak_flops * 2, kHeight - kBottom, kTop, true};
  double all = 0, outside_seconds = 0;
  int64_t outside = 0;
  for (const auto& p : r.points) all += p.seconds;
  std::string s = frame(x, y, "flop per byte", "flop/s");
  const double low = r.peak_bandwidth * x.low;
  s += fmt::format("<polyline class='line roof' points='{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}'></polyline>",
                   low >= y.low ? x.at(x.low) : x.at(y.low / r.peak_bandwidth), y.at(std::max(low, y.low)), x.at(ridge),
                   y.at(r.peak_flops), x.at(x.high), y.at(r.peak_flops));
  const auto within = [](const Axis& axis, double v) { return v >= axis.low && v <= axis.high; };
  for (const auto& p : r.points) {
    const double intensity = p.flops / p.bytes, rate = p.flops / p.seconds;
    if (!within(x, intensity) || !within(y, rate)) {
      ++outside;
      outside_seconds += p.seconds;
      continue;
    }
    s += fmt::format(
        "<circle class='dot' cx='{:.1f}' cy='{:.1f}' r='{:.1f}'><title>{}\n{:.1f} us, {} flop/s, {} "
        "B/s</title></circle>",
        x.at(intensity), y.at(rate), 2.5 + 18 * std::sqrt(p.seconds / all), escape_html(p.name), 1e6 * p.seconds,
        short_number(rate), short_number(p.bytes / p.seconds));
  }
  if (outside > 0)
    s += fmt::format("<text x='{}' y='18' text-anchor='end'>{} outside: {:.1f} % of the time</text>", kWidth - kRight,
                     outside, all > 0 ? 100 * outside_seconds / all : 0);
  return picture(kWidth, kHeight, s, "roofline", "class=chart");
}

std::string lane_chart(const LaneChart& c) {
  if (c.lanes.empty() || !(c.length > 0) || !std::isfinite(c.length)) return "";
  constexpr double kAbove = 8, kRow = 15, kBetween = 9;
  double widest = 0;
  for (const LaneChart::Lane& l : c.lanes) widest = std::max(widest, kLargestLetter * text_width(l.name));
  const Axis x{0, c.length, std::max(kLeast, 14 + widest), kWidth - kRight};
  double bottom = kAbove;
  std::string lanes;
  bool drawn = false;
  for (const LaneChart::Lane& l : c.lanes) {
    const double high = kRow * static_cast<double>(std::max<size_t>(1, l.rows.size()));
    lanes += fmt::format(
        "<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{}</text><rect class='ground' x='{:.1f}' y='{:.1f}' "
        "width='{:.1f}' height='{:.1f}'></rect>",
        x.from - 8, bottom + high / 2 + 5, escape_html(l.name), x.from, bottom, x.to - x.from, high);
    for (size_t row = 0; row < l.rows.size(); ++row)
      for (const LaneChart::Piece& p : l.rows[row]) {
        const double from = std::max(p.begin, 0.0), to = std::min(p.end, c.length);
        if (!(from < to)) continue;
        drawn = true;
        const std::string kind = p.kind < c.kinds.size() ? escape_html(c.kinds[p.kind]) : "";
        lanes += fmt::format(
            "<rect class='f{}' x='{:.2f}' y='{:.1f}' width='{:.2f}' height='{}'><title>{} {}: {} to {}</title></rect>",
            p.kind % kChartColours, x.at(from), bottom + kRow * static_cast<double>(row) + 1, x.at(to) - x.at(from),
            kRow - 2, escape_html(l.name), kind, short_number(p.begin, 4), short_number(p.end, 4));
      }
    bottom += high + kBetween;
  }
  if (!drawn) return "";
  const std::string s = marks_along(x, kAbove, bottom) + lanes +
                        fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>", (x.from + x.to) / 2,
                                    bottom + kBottom - 6, escape_html(c.x_label));
  return picture(kWidth, bottom + kBottom, s, "timeline", "class=chart") + legend(c.kinds);
}

std::string confusion_chart(const std::vector<std::string>& labels, const std::vector<int64_t>& counts) {
  const size_t n = labels.size();
  LATHE_CHECK(counts.size() == n * n);
  constexpr double kSide = 440, kLetter = 15, kWidestLabel = 6;
  std::vector<std::string> edge_labels;
  for (const std::string& label : labels) edge_labels.push_back(shortened(label, kWidestLabel));
  // Names that begin alike are distinguished by their numbers.
  if (std::set<std::string>(edge_labels.begin(), edge_labels.end()).size() < n)
    for (size_t i = 0; i < n; ++i) edge_labels[i] = shortened(fmt::format("{} {}", i, labels[i]), kWidestLabel);
  double widest = 1;
  for (const std::string& label : edge_labels) widest = std::max(widest, kLetter * text_width(label));
  const double edge = std::max(40.0, 12 + widest), below = 26 + 0.77 * widest;  // those below are slanted
  const double cell = (kSide - edge) / static_cast<double>(std::max<size_t>(n, 1));
  const auto every = static_cast<size_t>(std::ceil(kLetter / cell));
  const double above = std::max(4.0, 13 - cell / 2);  // letters are higher than a narrow row
  std::string s = fmt::format("<rect class='ground' x='{0:.1f}' y='{2}' width='{1:.1f}' height='{1:.1f}'></rect>", edge,
                              kSide - edge, above);
  for (size_t row = 0; row < n; ++row) {
    int64_t sum = 0;
    for (size_t column = 0; column < n; ++column) sum += counts[row * n + column];
    const double along = static_cast<double>(row) * cell, y = above + along, mid = y + cell / 2 + 4;
    if (row % every == 0) {
      s += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{}</text>", edge - 6, mid,
                       escape_html(edge_labels[row]));
      s += fmt::format("<text transform='translate({:.1f} {:.1f}) rotate(-50)' text-anchor='end'>{}</text>",
                       edge + along + cell / 2 + 4, above + kSide - edge + 14, escape_html(edge_labels[row]));
    }
    for (size_t column = 0; column < n; ++column) {
      const int64_t count = counts[row * n + column];
      if (count == 0) continue;  // most are, of many classes
      const double share = static_cast<double>(count) / static_cast<double>(sum);
      const double x = edge + static_cast<double>(column) * cell;
      s += fmt::format(
          "<rect class='{}' fill-opacity='{:.3f}' x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}'><title>{} taken "
          "for {}: {} ({:.1f} %)</title></rect>",
          row == column ? "right" : "wrong", std::sqrt(share), x, y, cell, cell, escape_html(labels[row]),
          escape_html(labels[column]), count, 100 * share);
      if (n <= 12)
        s += fmt::format("<text class='count' x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>", x + cell / 2, mid,
                         count);
    }
  }
  return picture(kSide, above + kSide - edge + below, s, "confusion matrix");
}

}  // namespace lathe::io
