// A curve of a chart.
#pragma once

#include <string>
#include <vector>

namespace lathe::io {

struct Line {                // A row of points.
  std::string name;          // for people
  std::vector<double> x, y;  // of equal length
  bool joined = true;        // by lines; false: dots
};

}  // namespace lathe::io
