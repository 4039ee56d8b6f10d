// One op on one device: what it achieves and how far that is from the machine's peaks. `lathe bench op NAME` prints it.
// The op runs as in training: through the passes, the plan and the Executor.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "peak/peak.h"

namespace lathe {

// Seconds of repeated measurements. The spread is the distance of the quartiles: half of all measurements lie within
// it.
struct Timing {
  double median = 0, low = 0, high = 0;                                     // low, high: first and third quartile
  double spread() const { return median > 0 ? (high - low) / median : 0; }  // of the quartiles, relative to the median
};
Timing summarize(std::vector<double> seconds);  // at least one

struct OpBenchRow {                             // One case of an op, measured.
  std::string label;                            // of the case
  Types in;                                     // types of the inputs
  std::vector<std::string> kernels;             // that ran, in order; none for a view
  std::string declined;                         // why the case cannot run on this device; empty: it ran
  Timing seconds;                               // of all launches together
  Cost cost;                                    // of all launches together
  double flops_percent = 0, bytes_percent = 0;  // of the peaks
};

// What to measure an op on, best known first: shapes of real models, large enough to leave the caches where the op
// moves memory. Ops without such a case give their samples, as far as they are not empty.
std::vector<Sample> bench_cases(const OpDef&);

// The op's first case with other shapes: "64x1024" or, for several inputs, "64x1024,1024,1024". One shape alone is
// taken for every input of an elementwise op. UserError where text or shapes do not fit the op.
Sample bench_case_of(const OpDef&, const std::string& shapes);

// Median of at least `rounds` runs, and of as many as fit into about 0.3 s.
OpBenchRow bench_case(const OpDef&, const Sample&, const Backend&, const DeviceOptions&, const Peak&, int rounds);

// "64x1024" -> [64, 1024]; UserError.
Shape parse_bench_shape(const std::string&);

}  // namespace lathe
