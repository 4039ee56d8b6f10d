// The data of a recipe: sources for training and evaluation, and the part of it that a plan needs.
#pragma once

#include <memory>

#include "base/shape.h"
#include "data/source.h"
#include "train/recipe.h"

namespace lathe {

// Enough to build and plan every step, with no file opened where the recipe says it all.
struct DataSpec {
  TensorType sample;  // field 0: the image or the tokens
  int64_t classes = 0;
  int64_t train = 0, eval = 0;  // samples
};

struct Dataset {
  std::shared_ptr<const data::Source> train, eval;
  DataSpec spec() const;
};

Dataset open_dataset(const Recipe&);
// From the recipe alone for synthetic data and fashion_mnist; opens the files otherwise.
DataSpec describe_data(const Recipe&);

}  // namespace lathe
