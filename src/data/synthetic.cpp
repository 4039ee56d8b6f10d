#include "data/synthetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "base/philox.h"

namespace lathe::data {
namespace {

constexpr uint32_t kPrototypeStream = 0x70726f74;  // "prot"
constexpr uint32_t kSampleStream = 0x73796e74;     // "synt"
constexpr uint32_t kMaskStream = 0x6d61736b;       // "mask"
constexpr int64_t kMaxPrototypeBytes = int64_t{1} << 30;
constexpr int64_t kCell = 4;  // prototypes are constant on 4 x 4 cells, so small shifts keep a class recognisable

// The sum of four random bytes: mean 510, standard deviation 148, close to a normal distribution.
int bell(uint32_t bits) {
  return static_cast<int>((bits & 0xff) + (bits >> 8 & 0xff) + (bits >> 16 & 0xff) + (bits >> 24)) - 510;
}

Field target_field(const SyntheticConfig& c) {
  if (c.label == LabelKind::value) return {"target", {DType::f32, {1}}};
  if (c.label == LabelKind::mask) return {"mask", {DType::u8, {c.shape[0], c.shape[1]}}};
  return {"label", {DType::i32, {}}};
}

int64_t synthetic_outputs(const SyntheticConfig& c) { return c.label == LabelKind::value ? 1 : c.classes; }

class Synthetic final : public Source {
 public:
  explicit Synthetic(const SyntheticConfig& config) : config_(config) {
    const Shape& shape = config.shape;
    fields_[0] = {"image", {DType::u8, shape}};
    fields_[1] = target_field(config);
    prototypes_.reserve(static_cast<size_t>(config.classes * shape.numel()));
    const int64_t cells_x = ceil_div(shape[1], kCell);
    for (int64_t label = 0; label < config.classes; ++label) {
      const CounterRng rng(config.seed, kPrototypeStream, static_cast<uint32_t>(label), 0);
      for (int64_t y = 0; y < shape[0]; ++y) {
        for (int64_t x = 0; x < shape[1]; ++x) {
          for (int64_t c = 0; c < shape[2]; ++c) {
            const int64_t cell = (y / kCell * cells_x + x / kCell) * shape[2] + c;
            prototypes_.push_back(static_cast<uint8_t>(64 + rng.below(static_cast<uint64_t>(cell), 128)));
          }
        }
      }
    }
  }

  int64_t size() const override { return config_.count; }
  std::span<const Field> fields() const override { return fields_; }

  void read(int64_t index, SampleSpans fields) const override {
    LATHE_CHECK(index >= 0 && index < config_.count, "sample {} of {}", index, config_.count);
    const CounterRng rng = rng_of(index);
    if (config_.label == LabelKind::mask) return read_mask(rng, fields);
    const int32_t label = label_by(rng);
    const int64_t numel = config_.shape.numel();
    const uint8_t* prototype = prototypes_.data() + label * numel;
    auto* image = reinterpret_cast<uint8_t*>(fields[0].data());
    for (int64_t i = 0; i < numel; ++i) image[i] = noisy(prototype[i], rng, i);
    if (config_.label == LabelKind::class_index) {
      std::memcpy(fields[1].data(), &label, sizeof label);
      return;
    }
    // Classes are equally likely: their numbers have the variance (n^2 - 1) / 12.
    const auto n = static_cast<double>(config_.classes);
    const double deviation = std::sqrt(std::max(1.0, n * n - 1) / 12);
    const auto value = static_cast<float>((label - (n - 1) / 2) / deviation);
    std::memcpy(fields[1].data(), &value, sizeof value);
  }

  int64_t classes() const override { return synthetic_outputs(config_); }
  std::string description() const override {
    return fmt::format("{} synthetic {} images {} in {} classes", config_.count, to_string(config_.split),
                       to_string(config_.shape), config_.classes);
  }
  int64_t resident_bytes() const override { return static_cast<int64_t>(prototypes_.size()); }
  std::optional<int32_t> label(int64_t index) const override {
    return config_.label == LabelKind::class_index ? label_by(rng_of(index)) : std::optional<int32_t>();
  }

 private:
  CounterRng rng_of(int64_t index) const {
    const auto counter = static_cast<uint64_t>(index);
    return {config_.seed, kSampleStream + (config_.split == Split::test ? 1 : 0), static_cast<uint32_t>(counter),
            static_cast<uint32_t>(counter >> 32)};
  }
  int32_t label_by(const CounterRng& rng) const {
    return static_cast<int32_t>(rng.below(0, static_cast<uint64_t>(config_.classes)));
  }

  static uint8_t noisy(int value, const CounterRng& rng, int64_t i) {
    return static_cast<uint8_t>(std::clamp(value + bell(rng.bits(static_cast<uint64_t>(i) + 1)) / 4, 0, 255));
  }

  void read_mask(const CounterRng& rng, SampleSpans fields) const {
    constexpr int kGround = 32;  // darker than any prototype
    const int64_t height = config_.shape[0], width = config_.shape[1], channels = config_.shape[2];
    auto* image = reinterpret_cast<uint8_t*>(fields[0].data());
    auto* mask = reinterpret_cast<uint8_t*>(fields[1].data());
    const CounterRng place(rng.bits(0), kMaskStream, 0, 0);
    const auto label = static_cast<int64_t>(1 + place.below(0, static_cast<uint64_t>(config_.classes - 1)));
    // Half of each side, rounded up, somewhere.
    const int64_t h = ceil_div(height, 2), w = ceil_div(width, 2);
    const auto top = static_cast<int64_t>(place.below(1, static_cast<uint64_t>(height - h + 1)));
    const auto left = static_cast<int64_t>(place.below(2, static_cast<uint64_t>(width - w + 1)));
    const uint8_t* prototype = prototypes_.data() + label * config_.shape.numel();
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const bool inside = y >= top && y < top + h && x >= left && x < left + w;
        mask[y * width + x] = static_cast<uint8_t>(inside ? label : 0);
        for (int64_t i = (y * width + x) * channels; i < (y * width + x + 1) * channels; ++i)
          image[i] = noisy(inside ? prototype[i] : kGround, rng, i);
      }
    }
  }

  SyntheticConfig config_;
  Field fields_[2];
  std::vector<uint8_t> prototypes_;  // (classes, H, W, C)
};

}  // namespace

SourceInfo describe_synthetic(const SyntheticConfig& config) {
  LATHE_USER_CHECK(config.count >= 1, "data: expected at least 1 synthetic sample, got {}; set data.train_samples",
                   config.count);
  LATHE_USER_CHECK(config.classes >= 1 && config.classes <= INT32_MAX,
                   "data.classes: expected at least 1 class, got {}", config.classes);
  LATHE_USER_CHECK(config.shape.ndim() == 3 && config.shape.numel() >= 1,
                   "data.shape: expected [height, width, channels], got {}", to_string(config.shape));
  const int64_t bytes = checked_mul(config.classes, config.shape.numel(), "data.shape");
  if (bytes > kMaxPrototypeBytes)
    throw Misfit({"data.shape", "data.classes"},
                 fmt::format("expected at most {} bytes for one image of each class, got {} classes of {}",
                             kMaxPrototypeBytes, config.classes, to_string(config.shape)));
  LATHE_USER_CHECK(config.label != LabelKind::mask || (config.classes >= 2 && config.classes <= 256),
                   "data.classes: expected 2 to 256 for masks, the background included, got {}", config.classes);
  return {{DType::u8, config.shape}, synthetic_outputs(config), config.count, bytes, target_field(config).type};
}

std::unique_ptr<Source> make_synthetic(const SyntheticConfig& config) {
  describe_synthetic(config);
  return std::make_unique<Synthetic>(config);
}

}  // namespace lathe::data
