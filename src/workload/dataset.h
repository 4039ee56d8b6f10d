// The data of a recipe: sources for training, validation and test, and the part of it that a plan needs.
#pragma once

#include <memory>

#include "base/shape.h"
#include "data/samples.h"
#include "data/source.h"
#include "recipe/recipe.h"

namespace lathe {

struct Preparation;  // of samples (recipe/sources/preparation.h)

// Enough to build and plan every step.
struct DataSpec {
  TensorType sample;                 // field 0: the image or the tokens
  int64_t classes = 0;               // or tokens
  int64_t train = 0, test = 0;       // samples
  int64_t resident_bytes = 0;        // memory that the sources hold
  TensorType label{DType::i32, {}};  // field 1
  data::LabelUnits units = {};       // of numbers to predict
  int64_t validation = 0;            // samples

  // Of a set; 0: there is none.
  int64_t samples(data::Split s) const {
    return s == data::Split::train ? train : s == data::Split::validation ? validation : test;
  }
  int64_t terms() const { return label.numel(); }  // of the loss, per sample
};

struct Dataset {                                                // Opened data.
  std::shared_ptr<const data::Source> train, validation, test;  // the last two may be null
  DataSpec spec;                                                // of all
  int64_t resident_bytes = 0;                                   // equals spec.resident_bytes
  std::shared_ptr<const Preparation> preparation;               // null: the data are no files
  uint64_t held_out = 0;  // data::HeldOut::fingerprint; 0: validation is no part of the training data

  // Null: there is none.
  const data::Source* of(data::Split s) const {
    return (s == data::Split::train ? train : s == data::Split::validation ? validation : test).get();
  }
};

Dataset open_dataset(const Recipe&);  // UserError as describe_data, or what reading found

// From the recipe, the sizes of the files and their headers; no sample is kept (of csv files only the rows say how
// many there are). UserError with Exit::bad_recipe and the place of the key where recipe and data do not fit,
// Exit::missing_input for missing files.
DataSpec describe_data(const Recipe&);

// A sentence for each set in which a class has no sample, with its classes; `names`: of the classes, or empty. Reads no
// sample: a source that does not know its labels without is skipped.
std::vector<std::string> missing_classes(const Dataset&, const std::vector<std::string>& names);
// The same of one set; "": every class has a sample there, or it is not known.
std::string missing_classes(const data::Source&, data::Split, const std::vector<std::string>& names);

// From the training data, which are read where nothing less is enough.
Preparation learn_preparation(const Recipe&);

// Samples of another file for a net of this recipe, to be predicted, prepared as the recipe's own are: rows of a table
// for csv; else arrays (.npy, .npz), images (.png, .pgm, .ppm) or IDX files. `sample`: what the net takes. UserError
// with the file and what does not fit. No file but `path` is opened.
data::Samples read_samples(const Recipe&, const Preparation&, const TensorType& sample, const std::string& path);
// Of the classes, in their order, where the data have some: words or numbers of a column, or folders. Else empty.
std::vector<std::string> class_names(const Recipe&);

// The rules that need the data: batch size, image sizes, channels. describe_data has called it.
void check_fit(const Recipe&, const DataSpec&);

}  // namespace lathe
