#include "data/noise.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"

namespace lathe::data {
namespace {

constexpr uint32_t kNoiseStream = 0x6e6f6973;  // "nois"
constexpr size_t kMaxLabelBytes = 64;          // of the source's own target, which nobody reads
constexpr double kBellDeviation = 147.80;      // of the sum of four random bytes

class Noisy final : public Source {
 public:
  Noisy(std::shared_ptr<const Source> images, double deviation, uint64_t seed)
      : images_(std::move(images)),
        seed_(seed),
        factor_(static_cast<int>(std::lround(deviation / kBellDeviation * 65536))),
        deviation_(deviation) {
    const TensorType& type = images_->fields()[0].type;
    fields_[0] = {"image", type};
    fields_[1] = {"clean", type};
    LATHE_CHECK(static_cast<size_t>(images_->fields()[1].type.bytes()) <= kMaxLabelBytes, "target of images");
  }

  int64_t size() const override { return images_->size(); }
  std::span<const Field> fields() const override { return fields_; }
  void read(int64_t index, SampleSpans fields) const override {
    std::array<std::byte, kMaxLabelBytes> target;
    const std::span<std::byte> inner[] = {
        fields[1], std::span(target).first(static_cast<size_t>(images_->fields()[1].type.bytes()))};
    images_->read(index, inner);
    const CounterRng rng(seed_, kNoiseStream, static_cast<uint32_t>(index),
                         static_cast<uint32_t>(static_cast<uint64_t>(index) >> 32));
    const auto* clean = reinterpret_cast<const uint8_t*>(fields[1].data());
    auto* noisy = reinterpret_cast<uint8_t*>(fields[0].data());
    for (size_t i = 0; i < fields[0].size(); ++i) {
      const uint32_t bits = rng.bits(i);
      const int bell = static_cast<int>((bits & 0xff) + (bits >> 8 & 0xff) + (bits >> 16 & 0xff) + (bits >> 24)) - 510;
      noisy[i] = static_cast<uint8_t>(std::clamp(clean[i] + ((bell * factor_ + (1 << 15)) >> 16), 0, 255));
    }
  }
  int64_t classes() const override { return fields_[0].type.shape[2]; }
  std::string description() const override {
    return fmt::format("{}, with noise of {}", images_->description(), deviation_);
  }
  int64_t resident_bytes() const override { return images_->resident_bytes(); }

 private:
  std::shared_ptr<const Source> images_;
  uint64_t seed_;
  int factor_;
  double deviation_;
  Field fields_[2];
};

}  // namespace

SourceInfo describe_noise(const SourceInfo& images) {
  if (images.sample.dtype != DType::u8 || images.sample.shape.ndim() != 3)
    throw Misfit({"data.target", "data.source"},
                 fmt::format("expected images of 8 bits for \"image\", got samples of {}", to_string(images.sample)));
  SourceInfo info = images;
  info.classes = images.sample.shape[2];
  info.label = images.sample;
  return info;
}

std::unique_ptr<Source> with_noise(std::shared_ptr<const Source> images, double deviation, uint64_t seed) {
  describe_noise(info_of(*images));
  return std::make_unique<Noisy>(std::move(images), deviation, seed);
}

}  // namespace lathe::data
