#include "data/hold_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/checked.h"
#include "base/philox.h"
#include "data/order.h"

namespace lathe::data {
namespace {

constexpr uint64_t kHoldOutSeed = 0x686f6c646f757421;  // apart from the order of epochs: "holdout!"

using Indices = std::vector<int64_t>;

// Some samples of `whole`, by their numbers.
class View final : public Source {
 public:
  View(std::shared_ptr<const Source> whole, Indices indices, const char* what)
      : whole_(std::move(whole)), indices_(std::move(indices)), what_(what) {}

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  std::span<const Field> fields() const override { return whole_->fields(); }
  void read(int64_t index, SampleSpans fields) const override { whole_->read(at(index), fields); }
  int64_t classes() const override { return whole_->classes(); }
  std::string description() const override { return fmt::format("{} {} of {}", size(), what_, whole_->description()); }
  int64_t resident_bytes() const override { return whole_->resident_bytes(); }
  LabelUnits label_units() const override { return whole_->label_units(); }
  std::optional<int32_t> label(int64_t index) const override { return whole_->label(at(index)); }

 private:
  int64_t at(int64_t index) const {
    LATHE_CHECK(index >= 0 && index < size(), "sample {} of {}", index, size());
    return indices_[static_cast<size_t>(index)];
  }

  std::shared_ptr<const Source> whole_;
  Indices indices_;
  const char* what_;
};

// How many samples each class gives.
std::map<int32_t, int64_t> quotas(const std::vector<int32_t>& labels, int64_t count) {
  const auto samples = static_cast<int64_t>(labels.size());
  std::map<int32_t, int64_t> sizes, out;
  for (const int32_t label : labels) ++sizes[label];
  struct Fraction {
    bool last;          // rounding up would take the last sample of the class
    int64_t remainder;  // of count * size / samples
    int32_t label;
  };
  std::vector<Fraction> fractions;
  int64_t left = count;
  for (const auto& [label, size] : sizes) {
    const int64_t product = checked_mul(count, size, "data.validation"), whole = product / samples;
    out[label] = whole;
    left -= whole;
    fractions.push_back({whole + 1 == size, product % samples, label});
  }
  std::ranges::sort(fractions, [](const Fraction& a, const Fraction& b) {
    return std::tie(a.last, b.remainder, a.label) < std::tie(b.last, a.remainder, b.label);
  });
  for (int64_t i = 0; i < left; ++i) ++out[fractions[static_cast<size_t>(i)].label];
  return out;
}

uint64_t fingerprint_of(const Indices& indices) {
  uint64_t hash = indices.size();
  for (const int64_t i : indices) {
    const auto block = Philox::generate({static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)},
                                        {static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0});
    hash = uint64_t{block[1]} << 32 | block[0];
  }
  return hash;
}

}  // namespace

int64_t held_out_count(double share, int64_t samples) {
  return static_cast<int64_t>(share * static_cast<double>(samples));
}

int64_t hold_out_bytes(int64_t samples) { return samples * static_cast<int64_t>(sizeof(int64_t)); }

bool has_labels(const Source& source) { return source.fields()[1].type == TensorType{DType::i32, {}}; }

std::vector<int32_t> labels_of(const Source& source) {
  std::vector<int32_t> out(static_cast<size_t>(source.size()));
  std::vector<std::byte> sample;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    if (const auto known = source.label(index)) {
      out[i] = *known;
      continue;
    }
    sample.resize(static_cast<size_t>(source.fields()[0].type.bytes()));
    const std::span<std::byte> spans[] = {sample, std::as_writable_bytes(std::span(&out[i], 1))};
    source.read(index, spans);
  }
  return out;
}

HeldOut hold_out(std::shared_ptr<const Source> whole, int64_t count, uint64_t seed) {
  const int64_t samples = whole->size();
  LATHE_CHECK(count > 0 && count < samples, "{} of {} samples", count, samples);
  const std::vector<int32_t> labels =
      has_labels(*whole) ? labels_of(*whole) : std::vector<int32_t>(static_cast<size_t>(samples));
  std::map<int32_t, int64_t> left = quotas(labels, count);
  Indices train, validation;
  train.reserve(static_cast<size_t>(samples - count));
  validation.reserve(static_cast<size_t>(count));
  const SampleOrder order(seed ^ kHoldOutSeed, 0, samples);
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t index = order(i);
    int64_t& wanted = left[labels[static_cast<size_t>(index)]];
    (wanted > 0 ? validation : train).push_back(index);
    wanted -= wanted > 0;
  }
  std::ranges::sort(train);
  HeldOut out;
  out.fingerprint = fingerprint_of(validation);
  out.train = std::make_shared<View>(whole, std::move(train), "training samples");
  out.validation = std::make_shared<View>(std::move(whole), std::move(validation), "validation samples");
  return out;
}

}  // namespace lathe::data
