#include "report/report_labels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "io/page/png.h"
#include "workload/pixels.h"

namespace lathe {
namespace {

constexpr int64_t kMostNumbers = 400;
constexpr int64_t kPictures = 16;

// Calls f(input, target, output) for `count` samples or fewer, evenly from all: files may be sorted.
template <class F>
void for_predictions(Executor& e, const Compiled& c, const data::Source& source, int64_t count, F&& f) {
  const size_t program = c.program("predict");
  const auto& ports = c.set.programs[program].inputs;
  const auto x = std::ranges::find(ports, "x", &Port::name);
  LATHE_CHECK(x != ports.end(), "a prediction without x");
  const int64_t batch = x->type.shape[0];
  count = std::min(count, source.size());
  std::vector<std::vector<std::byte>> targets(static_cast<size_t>(batch));
  for (auto& t : targets) t.resize(static_cast<size_t>(c.data.label.bytes()));
  const auto bytes = static_cast<size_t>(c.data.sample.bytes());
  for (int64_t first = 0; first < count; first += batch) {
    const int64_t here = std::min(batch, count - first);
    std::byte* at = e.staging(0, "x");
    for (int64_t i = 0; i < here; ++i) {
      const auto k = static_cast<size_t>(i);
      const std::span<std::byte> spans[] = {{at + k * bytes, bytes}, targets[k]};
      source.read((first + i) * source.size() / count, spans);
    }
    e.stage(program, 0);
    e.run(program, 0);
    const auto result = e.result("logits");
    const size_t each = result.size() / static_cast<size_t>(batch);
    for (int64_t i = 0; i < here; ++i) {
      const auto k = static_cast<size_t>(i);
      std::vector<float> output(each / sizeof(float));
      std::memcpy(output.data(), result.data() + k * each, each);
      f(std::span<const std::byte>(at + k * bytes, bytes), std::span<const std::byte>(targets[k]),
        std::span<const float>(output));
    }
  }
}

io::ReportPart numbers_part(Executor& e, const Compiled& c, const data::Source& source, std::string_view set) {
  // Several columns share the axes, so they are shown in deviations.
  const bool several = c.data.terms() > 1;
  const data::LabelUnits u = several ? data::LabelUnits{} : c.data.units;
  io::Line dots{fmt::format("{} samples", set), {}, {}, false}, truth{"as they should be", {}, {}};
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for_predictions(e, c, source, kMostNumbers,
                  [&](std::span<const std::byte>, std::span<const std::byte> target, std::span<const float> output) {
                    for (size_t i = 0; i < output.size(); ++i) {
                      float v = 0;
                      std::memcpy(&v, target.data() + i * sizeof v, sizeof v);
                      dots.x.push_back(v * u.scale + u.mean);
                      dots.y.push_back(output[i] * u.scale + u.mean);
                      low = std::min(low, dots.x.back());
                      high = std::max(high, dots.x.back());
                    }
                  });
  truth.x = truth.y = {low, high};
  const auto none = std::ranges::count_if(dots.y, [](double v) { return !std::isfinite(v); });
  return {"Predictions",
          fmt::format("{} numbers of the {} set{}.{}", dots.x.size(), set,
                      several ? ", each less the mean of its column, in deviations of it" : "",
                      none > 0 ? fmt::format(" For {} the outputs are no numbers: they are not drawn.", none) : ""),
          io::line_chart({"true value", "prediction", {std::move(dots), std::move(truth)}}),
          {},
          {}};
}

// Pictures beside each other, in red, green and blue.
class Strip {
 public:
  Strip(int64_t height, int64_t width, int64_t count)
      : height_(height),
        width_(width),
        gap_(std::max<int64_t>(1, width / 24)),
        all_(count * width + (count - 1) * gap_) {
    pixels_.assign(static_cast<size_t>(height_ * all_ * 3), kBetween);
  }
  // colour(pixel, channel of 3)
  template <class F>
  void put(int64_t place, F&& colour) {
    for (int64_t y = 0; y < height_; ++y)
      for (int64_t x = 0; x < width_; ++x)
        for (int64_t k = 0; k < 3; ++k)
          pixels_[static_cast<size_t>((y * all_ + place * (width_ + gap_) + x) * 3 + k)] = colour(y * width_ + x, k);
  }
  std::string png() const { return io::encode_png(pixels_, height_, all_, 3); }

 private:
  static constexpr uint8_t kBetween = 128;  // neither the ground of a light page nor of a dark one, nor a mask's
  int64_t height_, width_, gap_, all_;
  std::vector<uint8_t> pixels_;
};

io::ReportPart pixels_part(Executor& e, const Compiled& c, const data::Source& source, std::string_view set) {
  const Shape& shape = c.data.sample.shape;
  const int64_t h = shape[0], w = shape[1], channels = shape[2];
  const bool mask = c.config.task == Task::segment;
  const int64_t classes = c.config.model.classes;
  io::ReportPart part{set == "test" ? "Test samples" : "Validation samples",
                      "From left to right: the input, the output, the truth.",
                      "",
                      {},
                      {},
                      true};
  for_predictions(
      e, c, source, kPictures,
      [&](std::span<const std::byte> input, std::span<const std::byte> target, std::span<const float> output) {
        const auto channel = [&](int64_t k) { return std::min(k, channels - 1); };
        const auto in = [&](int64_t i, int64_t k) {
          return std::to_integer<uint8_t>(input[static_cast<size_t>(i * channels + channel(k))]);
        };
        const auto grey = [&](int64_t label) { return grey_of_class(label, classes); };
        const auto label_at = [&](int64_t i) { return class_of_pixel(output, i, classes); };
        Strip strip(h, w, 3);
        strip.put(0, in);
        std::string caption;
        if (mask) {
          int64_t right = 0;
          for (int64_t i = 0; i < h * w; ++i)
            right += label_at(i) == std::to_integer<int64_t>(target[static_cast<size_t>(i)]);
          strip.put(1, [&](int64_t i, int64_t) { return grey(label_at(i)); });
          strip.put(2,
                    [&](int64_t i, int64_t) { return grey(std::to_integer<int64_t>(target[static_cast<size_t>(i)])); });
          caption = fmt::format("{:.1f} % of the pixels are right",
                                100.0 * static_cast<double>(right) / static_cast<double>(h * w));
        } else {
          double before = 0, after = 0;
          for (size_t i = 0; i < target.size(); ++i) {
            const double truth = std::to_integer<int>(target[i]) / 255.0;
            before += std::pow(std::to_integer<int>(input[i]) / 255.0 - truth, 2);
            after += std::pow(static_cast<double>(output[i]) - truth, 2);
          }
          const auto psnr = [&](double sum) { return -10 * std::log10(sum / static_cast<double>(target.size())); };
          strip.put(1, [&](int64_t i, int64_t k) {
            return byte_of_pixel(output[static_cast<size_t>(i * channels + channel(k))]);
          });
          strip.put(2, [&](int64_t i, int64_t k) {
            return std::to_integer<uint8_t>(target[static_cast<size_t>(i * channels + channel(k))]);
          });
          caption = fmt::format("{:.1f} dB, the input {:.1f} dB", psnr(after), psnr(before));
        }
        const bool finite = std::ranges::all_of(output, [](float v) { return std::isfinite(v); });
        if (!finite) caption = "outputs that are no numbers";
        part.pictures.push_back({strip.png(), caption, finite});
      });
  return part;
}

}  // namespace

std::vector<io::ReportPart> label_parts(Executor& e, const Compiled& c, const data::Source& source,
                                        std::string_view set) {
  switch (c.config.task) {
    case Task::classify:
    case Task::embed: return {};
    case Task::regress: return {numbers_part(e, c, source, set)};
    case Task::segment:
    case Task::restore: return {pixels_part(e, c, source, set)};
  }
  return {};
}

}  // namespace lathe
