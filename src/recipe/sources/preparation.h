// How the samples of a recipe are prepared, as learned from its training data: with the recipe, all that samples of
// other files are read with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/formats/csv.h"
#include "data/formats/npy.h"

namespace lathe {

struct Preparation {
  std::vector<std::string> names = {};        // of the classes, in their order, where the data have some
  std::optional<data::CsvSchema> table = {};  // csv
  data::NpyScaling numbers = {};              // npy
  friend bool operator==(const Preparation&, const Preparation&) = default;
};

}  // namespace lathe
