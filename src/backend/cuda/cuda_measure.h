// What `lathe selftest --device cuda` measures on a card beyond conformance: products per type against the card's peak
// (are the tensor cores in use?), and copies under computation.
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"

namespace lathe {

struct CudaRate {       // Products of one type.
  std::string type;     // f32, tf32, bf16, f16, f64
  double flops = 0;     // achieved, per second
  double peak = 0;      // of the card at its boost clock; 0: it has no such unit
  std::string failure;  // why there is no number
};

struct CudaOverlap {                       // A copy from the host and products, each alone and both at once.
  double copy = 0, compute = 0, both = 0;  // seconds on the card: alone, alone, started together
  // Share of the shorter one that disappears behind the other: 1 is perfect.
  double share() const;
};

struct CudaMeasurements {       // What measure_cuda found.
  std::vector<CudaRate> rates;  // one per type
  CudaOverlap overlap;          // of copies and products
  // What does not hold, in words; empty for a card that is used as it should be: products reach a fair share of its
  // peak, those that have tensor cores are clearly faster than f32, and copies hide behind computation.
  std::vector<std::string> failures() const;
  // What failures() cannot tell of this one of the rates, and why; empty where it tells all.
  std::string not_judged(const CudaRate&) const;
  CudaRate rate_of(const std::string& type) const;  // zeros where it was not measured
};

// `backend` is the cuda backend (InternalError otherwise). n: side of the square products. 4096 keeps a large card busy
// for a few milliseconds per product.
CudaMeasurements measure_cuda(const Backend& backend, const DeviceOptions&, int64_t n = 4096);

}  // namespace lathe
