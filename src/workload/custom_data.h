// Data that a program hands to train() instead of naming them in the recipe. The recipe of such a run says
// data.source = "arrays" (floats) or "pixel_arrays" (bytes), with shape, target, classes and units: enough to predict
// with it, not to train or evaluate it again without the program.
#pragma once

#include "workload/dataset.h"

namespace lathe {

// The recipe with its data section as `train` is: what the target is follows from field 1, unless the recipe says it.
// UserError where the recipe asks for what only other data have.
Recipe with_custom_data(Recipe, const data::Source& train);

// Numbers to predict are in the units of training in all sets. `validation` and `test` may be null; data.validation
// holds a part of `train` out, which with `validation` is a UserError.
Dataset custom_dataset(const Recipe&, std::shared_ptr<const data::Source> train,
                       std::shared_ptr<const data::Source> validation, std::shared_ptr<const data::Source> test);

// What a prediction needs to know of the data, from the recipe of such a run alone; it counts no samples.
DataSpec custom_data_spec(const Recipe&);

// UserError where the data would have to be opened, which only the program that trained the run can do.
void refuse_custom_data(const Recipe&);

}  // namespace lathe
