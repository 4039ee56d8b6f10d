// Peaks of a device, measured through the same path that training uses: the rate of a large matrix product, of reading
// and writing memory, and of copies from and to the host.
#pragma once

#include "backend/backend.h"

namespace lathe {

struct Peak {                   // What a device achieves.
  double flops_per_second = 0;  // of a large product
  double bytes_per_second = 0;  // of memory, read and written
};

// The best that the machine has shown: now, in about half a second, or before, when it was less busy
// (peak/peak_store.h).
Peak measure_peak(const Backend&, const DeviceOptions&);

// Bytes per second, by the best of a few copies between staging memory and the arena. 0: the device's memory is the
// host's.
struct TransferRate {
  double to_device = 0, from_device = 0;  // by direction
};
TransferRate measure_transfer(const Backend&, const DeviceOptions&);  // see TransferRate

}  // namespace lathe
