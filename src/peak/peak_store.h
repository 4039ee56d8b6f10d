// The best peaks that each machine has shown, kept in the cache folder: what is measured while other work runs is too
// low, and percentages of it would be too high.
#pragma once

#include <string>

#include "peak/peak.h"

namespace lathe {

// Which kept peaks belong to: what the device is called (its model), its driver, and how many threads it uses.
std::string peak_machine(const Backend&, const DeviceOptions&);

// `now`, or what was kept for the machine where that is better; the better ones are kept. Many processes may do so at
// once: each sees a whole file, and of two that write the last one counts. A damaged file counts as absent, a folder
// that cannot be written or is "" as one that keeps nothing.
Peak keep_best_peak(const std::string& folder, const std::string& machine, const Peak& now);

}  // namespace lathe
