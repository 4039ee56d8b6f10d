// Measures the sizes that ProductTiles holds on a device, and keeps the best for later runs.
#pragma once

#include <string>
#include <vector>

namespace lathe {

struct TuneRow {        // One candidate.
  std::string tiles;    // in words
  double rate = 0;      // geometric mean over what is measured, in the part's unit
  bool before = false;  // what runs took until now
  bool taken = false;   // what they take from now on
};

struct TunePart {             // A text that is tuned by itself.
  std::string name, unit;     // for people; the unit is that of the rates
  std::vector<TuneRow> rows;  // best first
  int left_out = 0;           // candidates that the time did not allow
};

struct TuneReport {             // What tune_opencl_device measured.
  std::string device;           // as the driver names it
  std::vector<TunePart> parts;  // attention, loops (wide form), products
  std::string stored;           // file; "" where it could not be written
};

// `rounds` turns over the candidates of each part. No candidate after the second of a part is compiled once `seconds`
// have passed. DeviceError when there is no device of that number.
TuneReport tune_opencl_device(int index, int rounds, double seconds);

}  // namespace lathe
