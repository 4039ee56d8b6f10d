// svg: charts as SVG text for report.html. Colours are CSS classes (s0, s1, ... for series), so the page decides
// between light and dark; sizes are relative, so a chart is as wide as its place. Values come from files: text is
// escaped, and points that are not finite are left out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/curve.h"

namespace lathe::io {

std::string escape_html(std::string_view);
std::string short_number(double);  // "1.5k", "0.002", "3.1e-05"

struct ChartMark {
  double x = 0;
  std::string text;
};

struct LineChart {
  std::string x_label, y_label;
  std::vector<Line> lines;
  bool log_x = false;                 // places that are not positive are left out
  std::vector<ChartMark> marks = {};  // vertical lines
};
std::string line_chart(const LineChart&);  // "" when there is no finite point
std::string svg_file(const LineChart&);    // the same as a file of its own; names stand inside, of several lines

// Bytes over launches: series lie on each other. values[i] belongs to names[i]; all have the same length.
struct StackChart {
  std::string x_label, y_label;
  std::vector<std::string> names;
  std::vector<std::vector<double>> values;
};
std::string stack_chart(const StackChart&);

// The limits of a machine, and what reached them: each point has an area by its share of the time.
struct Roofline {
  struct Point {
    std::string name;
    double flops = 0, bytes = 0, seconds = 0;
  };
  double peak_flops = 0, peak_bandwidth = 0;  // per second
  std::vector<Point> points;                  // those without flops lie on the left edge
};
std::string roofline_chart(const Roofline&);

// counts[row * n + column], n labels: row: truth, column: prediction.
std::string confusion_chart(const std::vector<std::string>& labels, const std::vector<int64_t>& counts);

}  // namespace lathe::io
