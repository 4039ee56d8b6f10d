// Mean and deviation of numbers that are standardised.
#pragma once

#include <algorithm>
#include <cmath>

namespace lathe::data {

// Of n numbers with this sum and this sum of squares. What is constant but for rounding has no deviation to divide by:
// 1.
inline double deviation(double sum, double squares, double n) {
  const double mean = sum / n, variance = squares / n - mean * mean;
  return variance > 1e-12 * std::max(1.0, squares / n) ? std::sqrt(variance) : 1.0;
}

}  // namespace lathe::data
