#include "data/arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace lathe::data {
namespace {

Shape image_shape(const Shape& s) {
  LATHE_USER_CHECK(s.ndim() >= 1 && s.ndim() <= 3 && s.numel() > 0,
                   "array_source: expected samples of 1 to 3 axes with elements, got {}", to_string(s));
  if (s.ndim() == 3) return s;
  return s.ndim() == 2 ? Shape{s[0], s[1], 1} : Shape{1, s[0], 1};
}

class ArraySource final : public Source {
 public:
  ArraySource(std::span<const std::byte> x, DType type, const Shape& sample, std::span<const int32_t> labels,
              int64_t classes)
      : x_(x), labels_(labels), classes_(classes) {
    fields_[0] = {"x", {type, image_shape(sample)}};
    fields_[1] = {"label", {DType::i32, {}}};
    const auto count = static_cast<int64_t>(labels.size()), bytes = static_cast<int64_t>(x.size());
    LATHE_USER_CHECK(count > 0, "array_source: expected at least one sample, got none");
    LATHE_USER_CHECK(bytes / count == fields_[0].type.bytes() && bytes % count == 0,
                     "array_source: expected {} elements for each of {} labels, got {} elements in all", sample.numel(),
                     count, bytes / size_of(type));
    const auto bad = std::ranges::find_if(labels, [&](int32_t l) { return l < 0 || l >= classes; });
    LATHE_USER_CHECK(bad == labels.end(), "array_source: expected labels below {}, got {} for sample {}", classes, *bad,
                     bad - labels.begin());
  }

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  std::span<const Field> fields() const override { return fields_; }
  void read(int64_t index, SampleSpans fields) const override {
    const size_t bytes = fields[0].size(), at = static_cast<size_t>(index);
    std::memcpy(fields[0].data(), x_.data() + at * bytes, bytes);
    std::memcpy(fields[1].data(), &labels_[at], sizeof(int32_t));
  }
  int64_t classes() const override { return classes_; }
  std::string description() const override {
    return fmt::format("{} samples of {} in memory, {} classes", size(), to_string(fields_[0].type), classes_);
  }
  int64_t resident_bytes() const override { return 0; }  // they are the caller's

 private:
  std::span<const std::byte> x_;
  std::span<const int32_t> labels_;
  int64_t classes_;
  Field fields_[2];
};

}  // namespace

std::shared_ptr<const Source> array_source(std::span<const float> x, const Shape& sample,
                                           std::span<const int32_t> labels, int64_t classes) {
  return std::make_shared<ArraySource>(std::as_bytes(x), DType::f32, sample, labels, classes);
}

std::shared_ptr<const Source> array_source(std::span<const uint8_t> x, const Shape& sample,
                                           std::span<const int32_t> labels, int64_t classes) {
  return std::make_shared<ArraySource>(std::as_bytes(x), DType::u8, sample, labels, classes);
}

}  // namespace lathe::data
