// A curve of a chart.
#pragma once

#include <string>
#include <vector>

namespace lathe::io {

struct Line {                // Points that charts join.
  std::string name;          // for people
  std::vector<double> x, y;  // of equal length
};

}  // namespace lathe::io
