// Tables as text: comma, semicolon or tab between the cells (the first line tells), with or without a header, cells in
// double quotes where wanted. One column is what is to be predicted, the others are features: numbers, or words, of
// which each becomes a feature that is 0 or 1. What the features look like is learned from the training rows alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/samples.h"
#include "data/source.h"

namespace lathe::data {

struct CsvConfig {
  std::string path = {};
  std::string test_path = {};   // empty: of `path` every fifth row is a test row
  std::string header = "auto";  // "yes", "no"; auto: the first line is one when it has no number
  std::string label = {};       // name of the column to predict, or its number from 0; empty: the last one
  std::string ignore = {};      // columns that are left out, by name or number, with commas between them
  bool values = false;          // the label is a number to come near to, not a class
  int64_t classes = 0;          // different labels that there must be; 0: any number of them
  int64_t row = 0;              // a sample is [features / row, row, 1]; 0: [1, features, 1]
  bool standardize = true;      // columns of numbers have mean 0 and deviation 1 on the training rows
};

// Fields "features" f32[...], and "label" i32[] (classes in the order of their numbers, or of their names), or "target"
// f32[1], standardised always: target_units() tells how. UserError with file:line and the column for all that is wrong
// in a file; Misfit where the recipe is.
std::unique_ptr<Source> load_csv(const CsvConfig&, Split);
SourceInfo describe_csv(const CsvConfig&, Split);  // reads the file as well: nothing less tells the number of rows

// Rows of another file, to be predicted, with the features that load_csv would make of them. The column to predict and
// those that are ignored may be missing: by the header, in any order; without one, all columns or all but the one to
// predict. UserError with file:line for what does not fit.
Samples read_csv_samples(const CsvConfig&, const std::string& path);
std::vector<std::string> csv_labels(const CsvConfig&);  // as the file has them, in the order of the classes

}  // namespace lathe::data
