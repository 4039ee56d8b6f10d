// find_learning_rate: trains with a learning rate that grows by the same factor in each step, until the loss explodes,
// and looks where it fell fastest (Smith, 2017). Keeps no weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compile/compile.h"

namespace lathe {

struct LrFindOptions {           // How find_learning_rate goes.
  std::string out;               // gets lr_find.svg and lr_find.tsv
  bool new_out = false;          // never a directory that is there: out-2, out-3, ... if it has to be
  double low = 1e-6, high = 10;  // rates of the first and the last step
  int64_t steps = 140;           // from low to high
  CompileOptions compile;        // passes and device
};

struct LrFindPoint {                    // One step of it.
  double lr = 0, loss = 0, smooth = 0;  // as it was, and smoothed
};

struct LrFind {                     // What find_learning_rate found.
  std::vector<LrFindPoint> points;  // in order of the steps
  std::optional<double> suggested;  // where the smoothed loss falls fastest; none: it never fell
  double lowest = 0;                // where the smoothed loss is lowest: too large a rate already
  bool exploded = false;            // the loss grew beyond bounds before the end
  std::string picture, table;       // paths
};

LrFind find_learning_rate(const Recipe&, const LrFindOptions&);  // trains for it; the weights are thrown away

// What the points say, without a run.
void judge(LrFind&);

}  // namespace lathe
