// What the loader of a recipe gives, and what its training step takes.
#pragma once

#include "recipe/recipe.h"

namespace lathe {

struct LoaderBench {               // What bench_loader measured.
  int64_t batch = 0, batches = 0;  // measured
  int64_t sample_bytes = 0;        // all fields
  double samples_per_second = 0;   // from the loader, nobody else computing
  double bytes_per_second = 0;     // from the loader
  double step_seconds = 0;         // of one batch, data already there
  double needed_per_second = 0;    // samples
};

// Opens the data set and the device; measures each for about `seconds`.
LoaderBench bench_loader(const Recipe&, double seconds = 1);

}  // namespace lathe
