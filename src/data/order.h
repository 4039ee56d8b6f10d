// The order of samples: a pure function of (seed, epoch, position) with O(1) memory, so a run can resume at any batch
// and every thread can compute its own part.
#pragma once

#include <cstdint>

namespace lathe::data {

class SampleOrder {
 public:
  // n >= 1 samples. Without shuffle the order is 0, 1, 2, ...
  SampleOrder(uint64_t seed, int64_t epoch, int64_t n, bool shuffle = true);

  // The sample at `position` in [0, n); over all positions each sample occurs exactly once.
  int64_t operator()(int64_t position) const;

 private:
  uint64_t seed_;
  int64_t epoch_, n_;
  bool shuffle_;
  int low_bits_ = 0, high_bits_ = 0;
};

}  // namespace lathe::data
