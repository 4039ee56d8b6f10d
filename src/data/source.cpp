#include "data/source.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace lathe::data {
namespace {

class Subset final : public Source {
 public:
  Subset(std::shared_ptr<const Source> whole, int64_t first, int64_t count)
      : whole_(std::move(whole)), first_(first), count_(count) {}

  int64_t size() const override { return count_; }
  std::span<const Field> fields() const override { return whole_->fields(); }
  void read(int64_t index, SampleSpans fields) const override {
    LATHE_CHECK(index >= 0 && index < count_, "sample {} of {}", index, count_);
    whole_->read(first_ + index, fields);
  }
  int64_t classes() const override { return whole_->classes(); }
  std::string description() const override {
    return fmt::format("samples {} to {} of {}", first_, first_ + count_ - 1, whole_->description());
  }
  int64_t resident_bytes() const override { return whole_->resident_bytes(); }
  LabelUnits label_units() const override { return whole_->label_units(); }
  std::optional<int32_t> label(int64_t index) const override { return whole_->label(first_ + index); }

 private:
  std::shared_ptr<const Source> whole_;
  int64_t first_, count_;
};

}  // namespace

std::unique_ptr<Source> subset(std::shared_ptr<const Source> whole, int64_t first, int64_t count) {
  const int64_t size = whole->size();
  LATHE_USER_CHECK(first >= 0 && count > 0 && first <= size && count <= size - first,
                   "data: expected {} samples from sample {} on, got {} in {}; lower data.train_samples or "
                   "data.test_samples",
                   count, first, size, whole->description());
  return std::make_unique<Subset>(std::move(whole), first, count);
}

LabelUnits units_of(std::vector<double> means, std::vector<double> scales) {
  LATHE_CHECK(!means.empty() && means.size() == scales.size(), "{} means, {} scales", means.size(), scales.size());
  if (means.size() == 1) return {means[0], scales[0]};
  return {0, 1, std::move(means), std::move(scales)};
}

SourceInfo info_of(const Source& source) {
  return {source.fields()[0].type, source.classes(),        source.size(),
          source.resident_bytes(), source.fields()[1].type, source.label_units()};
}

int64_t sample_bytes(const Source& source) {
  int64_t bytes = 0;
  for (const Field& field : source.fields()) bytes += field.type.bytes();
  return bytes;
}

}  // namespace lathe::data
