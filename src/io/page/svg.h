// svg: charts as SVG text for report.html. Colours are CSS classes (s0, s1, ... for series), so the page decides
// between light and dark; series beyond the colours have dashes (d1, d2, ...: chart_style). Sizes are relative, so a
// chart is as wide as its place. Values come from files: text is escaped, and points that are not finite are left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/page/curve.h"
#include "io/page/svg_text.h"

namespace lathe::io {

struct ChartMark {
  double x = 0;
  std::string text;
};

struct LineChart {
  std::string x_label, y_label;
  std::vector<Line> lines;
  bool log_x = false;                 // places that are not positive are left out
  std::vector<ChartMark> marks = {};  // vertical lines
  bool last_values = true;            // stand beside the names of the lines
};
std::string line_chart(const LineChart&);  // "" when there is no finite point
std::string svg_file(const LineChart&);    // the same as a file of its own; names of several lines stand below

inline constexpr size_t kChartColours = 8;
std::string chart_style();  // CSS of the dashes, for the page

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
  std::vector<Point> points;                  // what is far outside of the picture is counted in it, not drawn
};
std::string roofline_chart(const Roofline&);

// What several workers did over time: a lane each, with rows below each other.
struct LaneChart {
  struct Piece {
    size_t kind = 0;  // of `kinds`
    double begin = 0, end = 0;
  };
  struct Lane {
    std::string name;
    std::vector<std::vector<Piece>> rows;  // as many in each lane
  };
  std::string x_label;
  double length = 0;               // of the axis, which begins at 0
  std::vector<std::string> kinds;  // their place is their colour; those without a name are not in the legend
  std::vector<Lane> lanes;
};
std::string lane_chart(const LaneChart&);  // "" when there is nothing to draw

// counts[row * n + column], n labels: row: truth, column: prediction. At the edges labels are shortened, and left out
// where rows are narrower than letters.
std::string confusion_chart(const std::vector<std::string>& labels, const std::vector<int64_t>& counts);

}  // namespace lathe::io
