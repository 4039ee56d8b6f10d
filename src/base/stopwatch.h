// Seconds since it was made, on a clock that never goes back.
#pragma once

#include <chrono>

namespace lathe {

class Stopwatch {  // Measures from its making on.
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }  // until now

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace lathe
