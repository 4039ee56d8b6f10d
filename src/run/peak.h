// Peaks of a device, measured through the same path that training uses: the rate of a large matrix product and of
// reading and writing memory.
#pragma once

#include "backend/backend.h"

namespace lathe {

struct Peak {
  double flops_per_second = 0;
  double bytes_per_second = 0;
};

Peak measure_peak(const Backend&, const DeviceOptions&);  // about half a second

}  // namespace lathe
