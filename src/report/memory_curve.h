// memory_curve: what less memory would cost a recipe in time, by planning its Programs under ever smaller budgets.
#pragma once

#include <string>
#include <vector>

#include "compile/compile.h"
#include "plan/curve.h"

namespace lathe {

struct MemoryCurve {               // Memory against time.
  std::vector<CurvePoint> points;  // of the training step; from the whole memory down to the smallest
  int64_t rest = 0;                // bytes that a run allocates beside the arena: budget + rest is memory.budget
  std::string device;              // that it holds for
  Rates rates;                     // that times are predicted with
  std::string rates_from;          // "measured", "device spec" or "assumed"
};

// The recipe's own budget and the device's memory do not limit it. Measures the device's peaks where it is here.
MemoryCurve memory_curve(const Recipe&, const DataSpec&, const CompileOptions&, int points = 16);

// Predicted time of a step over memory.budget, as an SVG file. UserError when it cannot be written.
void draw_curve(const MemoryCurve&, const std::string& path);

}  // namespace lathe
