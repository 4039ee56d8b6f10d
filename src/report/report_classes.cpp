#include "report/report_classes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "io/page/png.h"
#include "io/page/series_png.h"
#include "recipe/sources/source.h"
#include "workload/dataset.h"

namespace lathe {
namespace {

constexpr int64_t kMostClasses = 200;    // of a confusion matrix: more cannot be seen
constexpr int64_t kMostCounted = 2000;   // of the table of pairs
constexpr int64_t kMostSamples = 20000;  // of a set
constexpr size_t kPicturesEach = 16;     // right and wrong ones
constexpr size_t kMostPairs = 12;
constexpr int64_t kShortestSeries = 8, kMostLines = 8;  // of what is drawn as a series

// Their numbers where the data have no names.
std::vector<std::string> labels_of(const std::vector<std::string>& names, int64_t classes) {
  std::vector<std::string> out;
  const bool named = static_cast<int64_t>(names.size()) == classes;
  for (int64_t i = 0; i < classes; ++i)
    out.push_back(named ? io::readable_text(names[static_cast<size_t>(i)]) : std::to_string(i));
  return out;
}

// A sample as people look at it; "" where it is neither an image nor a series.
std::string sample_png(const Compiled& c, const std::byte* bytes) {
  const TensorType& type = c.data.sample;
  const Shape& s = type.shape;
  if (s.ndim() != 3) return "";
  if (type.dtype == DType::u8 && (s[2] == 1 || s[2] == 3))
    return io::encode_png({reinterpret_cast<const uint8_t*>(bytes), static_cast<size_t>(s.numel())}, s[0], s[1], s[2]);
  if (type.dtype != DType::f32 || s[0] < kShortestSeries || s[1] * s[2] > kMostLines) return "";
  std::vector<float> values(static_cast<size_t>(s.numel()));
  std::memcpy(values.data(), bytes, values.size() * sizeof(float));
  // The columns of a table that data.row puts beside each other are one series.
  return io::series_png(values, facts_of(c.recipe).table ? 1 : s[1] * s[2]);
}

struct Classified {
  std::vector<int64_t> counts;  // classes x classes
  std::vector<io::ReportPicture> right, wrong;
  int64_t samples = 0, correct = 0;
  int64_t none = 0;  // outputs that are not finite: of no class
};

// Every sample of a set through the prediction Program.
Classified classify(Executor& e, const Compiled& c, const data::Source& source,
                    const std::vector<std::string>& labels) {
  const int64_t classes = c.data.classes, count = std::min(source.size(), kMostSamples);
  const size_t program = c.program("predict"), bytes = static_cast<size_t>(c.data.sample.bytes());
  const int64_t batch = [&] {
    for (const Port& p : c.set.programs[program].inputs)
      if (p.name == "x") return p.type.shape[0];
    return int64_t{1};
  }();
  // Of each class about as many: the samples may be sorted by class.
  const size_t most_of_class = (kPicturesEach + static_cast<size_t>(classes) - 1) / static_cast<size_t>(classes);
  std::vector<size_t> of_class[2] = {std::vector<size_t>(static_cast<size_t>(classes)),
                                     std::vector<size_t>(static_cast<size_t>(classes))};
  Classified out;
  out.counts.assign(static_cast<size_t>(classes * classes), 0);
  std::vector<std::vector<std::byte>> fields;
  for (const data::Field& f : source.fields()) fields.emplace_back(static_cast<size_t>(f.type.bytes()));
  std::vector<int32_t> truth(static_cast<size_t>(batch));
  for (int64_t first = 0; first < count; first += batch) {
    const int64_t here = std::min(batch, count - first);
    std::byte* x = e.staging(0, "x");
    for (int64_t i = 0; i < here; ++i) {
      std::vector<std::span<std::byte>> spans(fields.begin(), fields.end());
      source.read(first + i, spans);
      std::memcpy(x + static_cast<size_t>(i) * bytes, fields[0].data(), bytes);
      std::memcpy(&truth[static_cast<size_t>(i)], fields[1].data(), sizeof(int32_t));
    }
    e.stage(program, 0);
    e.run(program, 0);
    const auto logits = e.result("logits");
    for (int64_t i = 0; i < here; ++i) {
      std::vector<float> row(static_cast<size_t>(classes));
      std::memcpy(row.data(), logits.data() + static_cast<size_t>(i) * row.size() * sizeof(float),
                  row.size() * sizeof(float));
      const auto best = std::ranges::max_element(row) - row.begin();
      const bool finite = std::ranges::all_of(row, [](float v) { return std::isfinite(v); });
      const int32_t y = truth[static_cast<size_t>(i)];
      if (y < 0 || y >= classes) continue;
      const bool right = finite && y == best;
      if (finite) ++out.counts[static_cast<size_t>(y * classes + best)];
      ++out.samples;
      out.correct += right;
      out.none += !finite;
      auto& shown = right ? out.right : out.wrong;
      size_t& same = of_class[right][static_cast<size_t>(y)];
      if (shown.size() >= kPicturesEach || same >= most_of_class) continue;
      std::string png = sample_png(c, x + static_cast<size_t>(i) * bytes);
      if (png.empty()) continue;
      ++same;
      double sum = 0;
      for (const float v : row) sum += std::exp(v - row[static_cast<size_t>(best)]);
      const std::string& said = labels[static_cast<size_t>(best)];
      const std::string& is = labels[static_cast<size_t>(y)];
      shown.push_back({std::move(png),
                       !finite ? fmt::format("no number, is {}", is)
                       : right ? fmt::format("{} ({:.0f} %)", said, 100 / sum)
                               : fmt::format("{}, is {} ({:.0f} %)", said, is, 100 / sum),
                       right});
    }
  }
  return out;
}

io::ReportPart pairs_part(const Classified& found, const std::vector<std::string>& labels, std::string_view set) {
  const size_t n = labels.size();
  std::vector<size_t> pairs;  // truth * n + prediction
  std::vector<int64_t> of_class(n);
  for (size_t i = 0; i < found.counts.size(); ++i) {
    of_class[i / n] += found.counts[i];
    if (found.counts[i] > 0 && i / n != i % n) pairs.push_back(i);
  }
  std::ranges::stable_sort(pairs, [&](size_t a, size_t b) { return found.counts[a] > found.counts[b]; });
  io::ReportPart part{
      "Most confused", fmt::format("In the {} set.", set), "", {}, {{"truth", "taken for", "samples"}, {}}};
  if (pairs.size() > kMostPairs)
    part.text = fmt::format("The first {} of {} pairs in the {} set.", kMostPairs, pairs.size(), set);
  pairs.resize(std::min(pairs.size(), kMostPairs));
  for (const size_t i : pairs)
    part.table.rows.push_back(
        {labels[i / n], labels[i % n],
         fmt::format("{} of {} ({:.1f} %)", found.counts[i], of_class[i / n],
                     100.0 * static_cast<double>(found.counts[i]) / static_cast<double>(of_class[i / n]))});
  return part;
}

}  // namespace

std::vector<io::ReportPart> class_parts(Executor& e, const Compiled& c, const data::Source& source,
                                        std::string_view set, const std::vector<std::string>& names) {
  if (c.config.task != Task::classify || c.data.terms() != 1 || c.data.classes > kMostCounted) return {};
  const std::vector<std::string> labels = labels_of(names, c.data.classes);
  Classified found = classify(e, c, source, labels);
  std::string text = fmt::format(
      "Rows: truth, columns: prediction; {} of {} {} samples are right ({:.2f} %).", found.correct, found.samples, set,
      100.0 * static_cast<double>(found.correct) / static_cast<double>(std::max<int64_t>(1, found.samples)));
  if (found.none > 0) text += fmt::format(" For {} the outputs are no numbers: they are in no column.", found.none);
  const data::Split split = set == data::to_string(data::Split::test) ? data::Split::test : data::Split::validation;
  if (const std::string missing = missing_classes(source, split, names); !missing.empty())
    text += fmt::format(" Warning: {}.", io::readable_text(missing));
  io::ReportPart matrix{"Confusion matrix", "", "", {}, {}};
  if (found.none == found.samples) {
    matrix.missing = "No output of the net is a number: there is no class that it predicts.";
  } else if (c.data.classes > kMostClasses) {
    matrix.missing = text + fmt::format(" {} classes are too many to be drawn.", c.data.classes);
  } else {
    matrix.text = std::move(text);
    matrix.svg = io::confusion_chart(labels, found.counts);
  }
  std::vector<io::ReportPart> parts{std::move(matrix), pairs_part(found, labels, set)};
  const bool series = c.data.sample.dtype == DType::f32;  // wider than high
  const std::string of_set = fmt::format("In the {} set.", set);
  parts.push_back({"Wrong predictions", of_set, "", std::move(found.wrong), {}, series});
  parts.push_back({"Right predictions", of_set, "", std::move(found.right), {}, series});
  return parts;
}

}  // namespace lathe
