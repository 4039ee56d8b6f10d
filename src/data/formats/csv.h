// Tables as text: comma, semicolon or tab between the cells (detected from the first line), with or without a header,
// cells in double quotes where wanted. One column is what is to be predicted, the others are features: numbers, or
// words, of which each becomes a feature that is 0 or 1. What the features look like is learned from the training rows
// alone.
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

struct CsvColumn {
  enum class Kind { ignored, label, number, words } kind = Kind::number;
  std::string name = {};                // the header's, else its number from 0
  std::vector<std::string> words = {};  // of a column of words; each is a feature, in this order
  double mean = 0, scale = 1;           // of a column of numbers: feature = (number - mean) / scale
  friend bool operator==(const CsvColumn&, const CsvColumn&) = default;
};

// What was learned of a table from the training rows: with the config, all that other rows are read with.
struct CsvSchema {
  bool header = false;                   // the first line has names
  int64_t first_line = 1;                // of the training rows, for errors
  std::vector<CsvColumn> columns = {};   // in the order of the file; one is the label
  std::vector<std::string> labels = {};  // as the file has them, in the order of the classes; empty for values
  friend bool operator==(const CsvSchema&, const CsvSchema&) = default;
};
inline constexpr size_t kMaxCsvWords = 64;  // different ones in a column of features
inline constexpr size_t kMaxCsvLabels = 65536;

// Fields "features" f32[...], and "label" i32[] (classes in the order of their numbers, or of their names), or "target"
// f32[1], standardised always: see label_units(). UserError with file:line and the column for all that is wrong
// in a file; Misfit where the recipe is.
// `learned` gets the schema.
std::unique_ptr<Source> load_csv(const CsvConfig&, Split, CsvSchema* learned = nullptr);
SourceInfo describe_csv(const CsvConfig&, Split);  // reads the file as well: the number of rows needs it

CsvSchema learn_csv(const CsvConfig&);  // from the training rows

// Rows of another file, to be predicted, with the features that load_csv would make of them. The column to predict and
// those that are ignored may be missing: by the header, in any order; without one, all columns or all but the one to
// predict. UserError with file:line for what does not fit. No file but `path` is opened. The schema has one label and
// at least one feature.
Samples read_csv_samples(const CsvConfig&, const CsvSchema&, const std::string& path);

}  // namespace lathe::data
