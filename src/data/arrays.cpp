#include "data/arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "data/moments.h"

namespace lathe::data {
namespace {

constexpr int64_t kMostMaskValues = 256;  // of a byte

Shape image_shape(const Shape& s) {
  LATHE_USER_CHECK(s.ndim() >= 1 && s.ndim() <= 3 && s.numel() > 0,
                   "array_source: expected samples of 1 to 3 axes with elements, got {}", to_string(s));
  if (s.ndim() == 3) return s;
  return s.ndim() == 2 ? Shape{s[0], s[1], 1} : Shape{1, s[0], 1};
}

template <class T>
std::span<const T> as_array(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// UserError with the sample of the first that is none of the classes; `each`: elements of a sample.
template <class T>
void check_classes(std::span<const T> all, int64_t classes, int64_t each, const char* what) {
  const auto bad = std::ranges::find_if(all, [&](int64_t v) { return v < 0 || v >= classes; });
  LATHE_USER_CHECK(bad == all.end(), "array_source: expected {} below {}, got {} for sample {}", what, classes,
                   int64_t{*bad}, (bad - all.begin()) / each);
}

// UserError with the first that is none; `each`: elements of a sample. 3 GB/s and more: the largest of the bits without
// the sign says whether all are finite.
void check_finite(std::span<const float> all, int64_t each) {
  constexpr uint32_t kSign = 0x80000000u, kInfinite = 0x7f800000u;
  constexpr size_t kBlock = 4096;
  for (size_t begin = 0; begin < all.size(); begin += kBlock) {
    const std::span<const float> block = all.subspan(begin, std::min(kBlock, all.size() - begin));
    uint32_t largest = 0;
    for (const float v : block) largest = std::max(largest, std::bit_cast<uint32_t>(v) & ~kSign);
    if (largest < kInfinite) continue;
    const auto bad = std::ranges::find_if(block, [](float v) { return !std::isfinite(v); });
    const int64_t at = static_cast<int64_t>(begin) + (bad - block.begin());
    throw UserError(fmt::format("array_source: expected finite numbers, got {} as element {} of sample {}", *bad,
                                at % each, at / each));
  }
}

}  // namespace

ArrayLabels ArrayLabels::classes(std::span<const int32_t> labels, int64_t classes) {
  ArrayLabels t;
  t.bytes_ = std::as_bytes(labels);
  t.number_ = classes;
  return t;
}

ArrayLabels ArrayLabels::values(std::span<const float> values, int64_t each) {
  ArrayLabels t;
  t.kind_ = LabelKind::value;
  t.bytes_ = std::as_bytes(values);
  t.number_ = each;
  return t;
}

ArrayLabels ArrayLabels::masks(std::span<const uint8_t> pixels, int64_t classes) {
  ArrayLabels t;
  t.kind_ = LabelKind::mask;
  t.bytes_ = std::as_bytes(pixels);
  t.number_ = classes;
  return t;
}

ArrayLabels ArrayLabels::images(std::span<const uint8_t> pixels) {
  ArrayLabels t;
  t.kind_ = LabelKind::image;
  t.bytes_ = std::as_bytes(pixels);
  return t;
}

class ArraySource final : public Source {
 public:
  ArraySource(std::span<const std::byte> x, DType type, const Shape& sample, const ArrayLabels& y)
      : x_(x), y_(y.bytes_), kind_(y.kind_), classes_(y.number_) {
    fields_[0] = {"x", {type, image_shape(sample)}};
    LATHE_USER_CHECK(y.number_ > 0, "array_source: expected at least one {}, got {}",
                     kind_ == LabelKind::value ? "number per sample" : "class", y.number_);
    fields_[1] = target_field();
    const int64_t each = fields_[1].type.bytes(), bytes = static_cast<int64_t>(x.size());
    size_ = static_cast<int64_t>(y_.size()) / each;
    LATHE_USER_CHECK(!y_.empty(), "array_source: expected at least one sample, got none");
    LATHE_USER_CHECK(static_cast<int64_t>(y_.size()) % each == 0,
                     "array_source: expected {} elements of the {} for each sample, got {} in all",
                     fields_[1].type.numel(), words(),
                     static_cast<int64_t>(y_.size()) / size_of(fields_[1].type.dtype));
    LATHE_USER_CHECK(bytes / size_ == fields_[0].type.bytes() && bytes % size_ == 0,
                     "array_source: expected {} elements for each of {} {}, got {} elements in all", sample.numel(),
                     size_, words(), bytes / size_of(type));
    if (type == DType::f32) check_finite(as_array<float>(x), fields_[0].type.numel());
    check_targets();
  }

  int64_t size() const override { return size_; }
  std::span<const Field> fields() const override { return fields_; }
  void read(int64_t index, SampleSpans fields) const override {
    LATHE_CHECK(index >= 0 && index < size_, "sample {} of {}", index, size_);
    const size_t bytes = fields[0].size(), each = fields[1].size(), at = static_cast<size_t>(index);
    std::memcpy(fields[0].data(), x_.data() + at * bytes, bytes);
    if (kind_ != LabelKind::value) {
      std::memcpy(fields[1].data(), y_.data() + at * each, each);
      return;
    }
    const std::span<const float> values = as_array<float>(y_.subspan(at * each, each));
    for (size_t i = 0; i < values.size(); ++i) {
      const auto v = static_cast<float>((values[i] - units_.mean_of(i)) / units_.scale_of(i));
      std::memcpy(fields[1].data() + i * sizeof v, &v, sizeof v);
    }
  }
  int64_t classes() const override { return classes_; }
  std::string description() const override {
    return fmt::format("{} samples of {} in memory, {} {}", size_, to_string(fields_[0].type), classes_,
                       kind_ == LabelKind::value   ? "numbers each"
                       : kind_ == LabelKind::image ? "channels"
                                                   : "classes");
  }
  int64_t resident_bytes() const override { return 0; }  // they are the caller's
  LabelUnits label_units() const override { return units_; }
  std::optional<int32_t> label(int64_t index) const override {
    return kind_ == LabelKind::class_index ? as_array<int32_t>(y_)[static_cast<size_t>(index)]
                                           : std::optional<int32_t>();
  }

 private:
  // Plural, for errors.
  const char* words() const {
    switch (kind_) {
      case LabelKind::class_index: return "labels";
      case LabelKind::value: return "values";
      case LabelKind::mask: return "masks";
      case LabelKind::image: return "images";
    }
    return "";
  }

  Field target_field() {
    const TensorType& x = fields_[0].type;
    switch (kind_) {
      case LabelKind::class_index: return {"label", {DType::i32, {}}};
      case LabelKind::value: return {"target", {DType::f32, {classes_}}};
      case LabelKind::mask:
        LATHE_USER_CHECK(classes_ <= kMostMaskValues, "array_source: expected at most {} classes of masks, got {}",
                         kMostMaskValues, classes_);
        return {"mask", {DType::u8, {x.shape[0], x.shape[1]}}};
      case LabelKind::image:
        LATHE_USER_CHECK(x.dtype == DType::u8, "array_source: expected samples of bytes for images, got {}",
                         to_string(x.dtype));
        classes_ = x.shape[2];
        return {"clean", x};
    }
    return {};
  }

  void check_targets() {
    if (kind_ == LabelKind::class_index) check_classes(as_array<int32_t>(y_), classes_, 1, "labels");
    if (kind_ == LabelKind::mask)
      check_classes(as_array<uint8_t>(y_), classes_, fields_[1].type.numel(), "classes of pixels");
    if (kind_ != LabelKind::value) return;
    const std::span<const float> values = as_array<float>(y_);
    const auto columns = static_cast<size_t>(classes_);
    std::vector<Moments> of(columns);
    for (size_t i = 0; i < values.size(); ++i) {
      const double v = values[i];
      LATHE_USER_CHECK(std::isfinite(v), "array_source: expected finite values, number {} is none", i);
      of[i % columns].add(v);
    }
    std::vector<double> means, scales;
    for (const Moments& column : of) {
      means.push_back(column.mean());
      scales.push_back(column.deviation());
    }
    units_ = units_of(std::move(means), std::move(scales));
  }

  std::span<const std::byte> x_, y_;
  LabelKind kind_;
  int64_t classes_, size_ = 0;
  LabelUnits units_;
  Field fields_[2];
};

std::shared_ptr<const Source> array_source(std::span<const float> x, const Shape& sample, const ArrayLabels& y) {
  return std::make_shared<ArraySource>(std::as_bytes(x), DType::f32, sample, y);
}

std::shared_ptr<const Source> array_source(std::span<const uint8_t> x, const Shape& sample, const ArrayLabels& y) {
  return std::make_shared<ArraySource>(std::as_bytes(x), DType::u8, sample, y);
}

std::shared_ptr<const Source> array_source(std::span<const float> x, const Shape& sample,
                                           std::span<const int32_t> labels, int64_t classes) {
  return array_source(x, sample, ArrayLabels::classes(labels, classes));
}

std::shared_ptr<const Source> array_source(std::span<const uint8_t> x, const Shape& sample,
                                           std::span<const int32_t> labels, int64_t classes) {
  return array_source(x, sample, ArrayLabels::classes(labels, classes));
}

}  // namespace lathe::data
