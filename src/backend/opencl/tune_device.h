// Measures tile sizes of product.k on a device, and keeps the best for later runs.
#pragma once

#include <string>
#include <vector>

namespace lathe {

struct TuneRow {        // One candidate.
  std::string tiles;    // in words
  double gflops = 0;    // geometric mean over the products that are measured
  bool before = false;  // what runs took until now
};

struct TuneReport {           // What tune_opencl_device measured.
  std::string device;         // as the driver names it
  std::vector<TuneRow> rows;  // best first
  int left_out = 0;           // candidates that the time did not allow
  std::string stored;         // file; "" where it could not be written
};

// `rounds` turns over the candidates. No candidate after the second is compiled once `seconds` have passed. DeviceError
// when there is no device of that number.
TuneReport tune_opencl_device(int index, int rounds, double seconds);

}  // namespace lathe
