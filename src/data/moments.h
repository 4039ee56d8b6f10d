// Mean and deviation of numbers that are standardised.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace lathe::data {

// Of numbers one after another. Squares are taken around the running mean: around 0 they would drown the deviation of
// numbers that are far from it.
class Moments {
 public:
  void add(double v) {
    const double off = v - mean_;
    mean_ += off / static_cast<double>(++count_);
    squares_ += off * (v - mean_);
  }

  double mean() const { return mean_; }

  // What is constant but for the rounding of f64 has no deviation to divide by: 1.
  double deviation() const {
    const double d = std::sqrt(squares_ / static_cast<double>(count_));
    return d > 4 * std::numeric_limits<double>::epsilon() * std::abs(mean_) ? d : 1.0;
  }

 private:
  int64_t count_ = 0;
  double mean_ = 0, squares_ = 0;
};

}  // namespace lathe::data
