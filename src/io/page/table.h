// A table as text.
#pragma once

#include <string>
#include <vector>

namespace lathe::io {

struct ReportTable {                           // Rows under a header.
  std::vector<std::string> header;             // a name per column
  std::vector<std::vector<std::string>> rows;  // columns after the first are numbers: set to the right
};

}  // namespace lathe::io
