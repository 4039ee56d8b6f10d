// Source: a dataset as an array of samples. A sample is a few fields of fixed type ("image" u8[28, 28, 1], "label"
// i32[]); the loader reads samples from many threads and lays them out as batches.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/shape.h"

namespace lathe::data {

inline constexpr int kMaxFields = 8;  // of one sample

enum class Split {  // What data are for.
  train,            // what is learned from
  validation,       // what choices are made by: a part of the training data that is not learned from
  test,             // what is only measured
};
inline const char* to_string(Split split) {  // its name
  return split == Split::train ? "train" : split == Split::validation ? "validation" : "test";
}

// What is to be predicted of a sample, which is its field 1.
enum class LabelKind {
  class_index,  // its class: i32[], or i32[T] for tokens
  value,        // numbers: f32[n]
  mask,         // the class of each pixel: u8[H, W]
  image,        // the image without noise: u8[H, W, C]
};
inline constexpr std::string_view kLabelKindNames[] = {"class", "value", "mask", "image"};  // in recipes, by LabelKind
// In recipes.
constexpr std::string_view name_of(LabelKind kind) { return kLabelKindNames[static_cast<size_t>(kind)]; }

class LabelKinds {  // Some of them.
 public:
  constexpr LabelKinds() = default;                               // none
  constexpr LabelKinds(std::initializer_list<LabelKind> kinds) {  // these
    for (const LabelKind kind : kinds) bits_ |= bit(kind);
  }
  constexpr bool has(LabelKind kind) const { return (bits_ & bit(kind)) != 0; }  // whether it is one of them
  constexpr int size() const { return std::popcount(bits_); }                    // how many

 private:
  static constexpr unsigned bit(LabelKind kind) { return 1u << static_cast<unsigned>(kind); }
  unsigned bits_ = 0;
};

struct Field {       // One tensor of a sample.
  std::string name;  // "image", "label"
  TensorType type;   // of one sample
};

// Where one sample goes: one span per field, each exactly as long as the field's type.
using SampleSpans = std::span<const std::span<std::byte>>;

// Numbers to predict are standardised: value = target * scale + mean, in the units of the data. Where a sample has
// several, each column has its own: they need not be of one size.
struct LabelUnits {
  double mean = 0, scale = 1;       // of every column where the lists are empty
  std::vector<double> means = {};   // of each column, or empty
  std::vector<double> scales = {};  // as many as means

  double mean_of(size_t column) const { return means.empty() ? mean : means[column]; }      // of one column
  double scale_of(size_t column) const { return scales.empty() ? scale : scales[column]; }  // of one column
};
// Of one column (without lists), or of each of several; as many means as scales.
LabelUnits units_of(std::vector<double> means, std::vector<double> scales);

// All members are const and safe to call from several threads at once.
class Source {
 public:
  virtual ~Source() = default;
  virtual int64_t size() const = 0;                                // samples
  virtual std::span<const Field> fields() const = 0;               // the same for every sample
  virtual void read(int64_t index, SampleSpans fields) const = 0;  // writes the sample's fields
  // Labels and tokens are in [0, classes); numbers to predict: how many there are per sample or pixel.
  virtual int64_t classes() const = 0;
  virtual std::string description() const = 0;           // for people: what, how much, from where
  virtual int64_t resident_bytes() const = 0;            // memory held for the samples, for the memory report
  virtual LabelUnits label_units() const { return {}; }  // of numbers to predict
  // The class of a sample, where field 1 is one and is known without reading the sample; else nothing.
  virtual std::optional<int32_t> label(int64_t) const { return {}; }
};

// What a plan needs to know of a source, without its samples.
struct SourceInfo {
  TensorType sample;                 // field 0
  int64_t classes = 0;               // as Source::classes
  int64_t size = 0;                  // samples
  int64_t resident_bytes = 0;        // as Source::resident_bytes
  TensorType label{DType::i32, {}};  // field 1
  LabelUnits units = {};             // as Source::label_units
};
SourceInfo info_of(const Source&);  // of an opened source

// What was asked for does not fit the data, and the data are as they should be: `keys` are the recipe keys at fault,
// the likeliest first.
class Misfit : public UserError {
 public:
  Misfit(std::vector<std::string> keys, const std::string& message)  // see the class
      : UserError(message, Exit::bad_recipe), keys_(std::move(keys)) {}
  const std::vector<std::string>& keys() const { return keys_; }  // of the recipe

 private:
  std::vector<std::string> keys_;
};

// The samples [first, first + count) of `whole`; UserError when they are not all there.
std::unique_ptr<Source> subset(std::shared_ptr<const Source> whole, int64_t first, int64_t count);

// Bytes of one sample over all fields.
int64_t sample_bytes(const Source& source);

}  // namespace lathe::data
