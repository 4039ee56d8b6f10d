#include "train/report.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/stopwatch.h"
#include "io/png.h"
#include "io/report.h"
#include "run/peak.h"
#include "train/progress.h"
#include "train/report_targets.h"
#include "train/run_dir.h"
#include "train/text_writer.h"
#include "train/trainer.h"

namespace lathe {
namespace {

constexpr int64_t kMaxMetricsBytes = int64_t{1} << 30;
constexpr int64_t kMostClasses = 200;  // of a confusion matrix: more cannot be seen
constexpr int64_t kMostSamples = 20000;
constexpr size_t kPicturesEach = 16;  // right and wrong ones
constexpr int kTimings = 5;
constexpr size_t kLongestLabel = 10;
constexpr size_t kPromptBytes = 60, kWrittenBytes = 320;
constexpr int64_t kBytesAtOnce = 8;
constexpr double kWritingSeconds = 1.5;

struct Curves {
  io::Line loss{"training", {}, {}}, eval_loss{"test", {}, {}}, accuracy{"accuracy", {}, {}}, lr{"rate", {}, {}},
      norm{"norm", {}, {}};
  std::map<std::string, io::Line> others;  // of evaluation: "rmse", "iou", ...
};

Curves read_metrics(const std::string& path) {
  io::PosixFs fs;
  Curves c;
  if (!io::info_at(fs, path)) return c;
  std::istringstream lines(read_text(fs, path, kMaxMetricsBytes));
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    const auto j = nlohmann::json::parse(line, nullptr, false);
    if (!j.is_object() || !j.contains("step") || !j["step"].is_number())
      throw UserError(fmt::format("{}:{}: expected an object with a step, as `lathe train` writes them", path, number));
    const auto add = [&](io::Line& to, const char* key, double factor = 1) {
      const auto v = j.find(key);
      if (v == j.end() || !v->is_number()) return;
      to.x.push_back(j["step"].get<double>());
      to.y.push_back(factor * v->get<double>());
    };
    add(c.loss, "loss");
    add(c.eval_loss, "eval_loss");
    add(c.accuracy, "eval_accuracy", 100);
    add(c.lr, "lr");
    add(c.norm, "grad_norm");
    for (const auto& [key, value] : j.items())
      if (key.starts_with("eval_") && key != "eval_loss" && key != "eval_accuracy" && c.others.size() < 16) {
        io::Line& curve = c.others[key.substr(5)];
        curve.name = key.substr(5);
        add(curve, key.c_str());
      }
  }
  return c;
}

// Bytes as text of a page: what is no UTF-8 is replaced, and so are control characters.
std::string readable_text(const std::string& bytes) {
  using nlohmann::json;
  std::string text = json::parse(json(bytes).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') c = ' ';
  return text;
}

// Names of classes, short enough for the edge of a chart; their numbers where the data have no names.
std::vector<std::string> labels_of(const Recipe& r, int64_t classes) {
  std::vector<std::string> out = class_names(r);
  if (static_cast<int64_t>(out.size()) != classes) out.clear();
  for (std::string& name : out) {
    name = readable_text(name);
    if (name.size() <= kLongestLabel) continue;
    size_t end = kLongestLabel - 1;
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;  // within a character
    name = name.substr(0, end) + "…";
  }
  for (int64_t i = static_cast<int64_t>(out.size()); i < classes; ++i) out.push_back(std::to_string(i));
  return out;
}

// What a text model makes of the beginning of its test data; as much as it can write in a short time.
io::ReportPart text_part(const std::string& run, const std::vector<std::string>& sets, const data::Source& eval) {
  std::vector<int32_t> tokens(static_cast<size_t>(eval.fields()[0].type.numel())), next = tokens;
  const std::span<std::byte> spans[] = {std::as_writable_bytes(std::span(tokens)),
                                        std::as_writable_bytes(std::span(next))};
  eval.read(0, spans);
  io::ReportPart part{
      "What it writes", "The beginning is from the test data, what follows is the model's.", "", {}, {}};
  for (size_t i = 0; i < std::min(tokens.size(), kPromptBytes); ++i) part.prompt += static_cast<char>(tokens[i]);
  TextWriter writer(run, sets);
  const Stopwatch start;
  Sampling sampling;
  std::string text = part.prompt;
  try {
    while (text.size() < part.prompt.size() + kWrittenBytes && start.seconds() < kWritingSeconds) {
      text += writer.write(text, kBytesAtOnce, sampling);
      ++sampling.seed;
    }
  } catch (const UserError&) {
    // Weights that are not finite write nothing; the rest of the page is still worth to be seen.
  }
  part.written = readable_text(text.substr(part.prompt.size()));
  part.prompt = readable_text(part.prompt);
  return part;
}

struct Outcome {
  std::vector<int64_t> counts;  // classes x classes
  std::vector<io::ReportPicture> right, wrong;
  int64_t samples = 0, correct = 0;
};

// Every test sample through the prediction Program.
Outcome classify(Executor& e, const Compiled& c, const data::Source& source, const std::vector<std::string>& labels) {
  const int64_t classes = c.data.classes, count = std::min(source.size(), kMostSamples);
  const size_t program = c.program("predict"), bytes = static_cast<size_t>(c.data.sample.bytes());
  const int64_t batch = [&] {
    for (const Port& p : c.set.programs[program].inputs)
      if (p.name == "x") return p.type.shape[0];
    return int64_t{1};
  }();
  const Shape& shape = c.data.sample.shape;
  const bool picture = c.data.sample.dtype == DType::u8 && shape.ndim() == 3 && (shape[2] == 1 || shape[2] == 3);
  Outcome out;
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
      const int32_t y = truth[static_cast<size_t>(i)];
      if (y < 0 || y >= classes) continue;
      ++out.counts[static_cast<size_t>(y * classes + best)];
      ++out.samples;
      const bool right = y == best;
      out.correct += right;
      auto& shown = right ? out.right : out.wrong;
      if (!picture || shown.size() >= kPicturesEach) continue;
      double sum = 0;
      for (const float v : row) sum += std::exp(v - row[static_cast<size_t>(best)]);
      const auto* pixels = reinterpret_cast<const uint8_t*>(x) + static_cast<size_t>(i) * bytes;
      shown.push_back({io::encode_png({pixels, bytes}, shape[0], shape[1], shape[2]),
                       right ? fmt::format("{} ({:.0f} %)", labels[static_cast<size_t>(best)], 100 / sum)
                             : fmt::format("{}, is {} ({:.0f} %)", labels[static_cast<size_t>(best)],
                                           labels[static_cast<size_t>(y)], 100 / sum),
                       right});
    }
  }
  return out;
}

// Best time of each launch of a training step, in the order of the Program.
std::vector<double> time_step(Executor& e, const Compiled& c, size_t program, const data::Source& source) {
  std::vector<std::vector<std::byte>> fields;
  for (const data::Field& f : source.fields()) fields.emplace_back(static_cast<size_t>(f.type.bytes()));
  for (int64_t i = 0; i < c.schedule.batch; ++i) {
    std::vector<std::span<std::byte>> spans(fields.begin(), fields.end());
    source.read(i % source.size(), spans);
    for (size_t f = 0; f < 2; ++f)
      std::memcpy(e.staging(0, f == 0 ? "x" : "y") + static_cast<size_t>(i) * fields[f].size(), fields[f].data(),
                  fields[f].size());
    std::memcpy(e.staging(0, "index") + static_cast<size_t>(i) * sizeof(int64_t), &i, sizeof i);
  }
  stage_step_inputs(e, 0, c.recipe.seed, 0, c.recipe.optimizer.lr, 1.0 / static_cast<double>(c.schedule.batch));
  std::vector<double> best;
  for (int k = 0; k < kTimings; ++k) {
    const std::vector<double> seconds = e.profile(program, 0);
    if (best.empty()) best = seconds;
    for (size_t i = 0; i < best.size(); ++i) best[i] = std::min(best[i], seconds[i]);
  }
  return best;
}

io::ReportPart memory_part(const Program& p) {
  io::StackChart chart{"node of the step", "bytes", {}, {}};
  const MemoryReport& m = p.memory;
  const size_t n = m.timeline.size();
  for (const MemoryClass k : {MemoryClass::weights, MemoryClass::optimizer, MemoryClass::staging}) {
    chart.names.emplace_back(to_string(k));
    chart.values.emplace_back(n, static_cast<double>(m.of(k)));
  }
  int64_t kept = m.of(MemoryClass::gradients) - m.timeline[static_cast<size_t>(m.peak)].gradients;  // over steps
  for (const auto& [name, member] : {std::pair{"gradients", &MemoryReport::Moment::gradients},
                                     std::pair{"activations", &MemoryReport::Moment::activations},
                                     std::pair{"workspace", &MemoryReport::Moment::workspace}}) {
    chart.names.emplace_back(name);
    auto& v = chart.values.emplace_back();
    for (const auto& moment : m.timeline) v.push_back(static_cast<double>(moment.*member + kept));
    kept = 0;
  }
  io::ReportPart part{"Memory over one step", "", io::stack_chart(chart), {}, {}};
  part.text = fmt::format(
      "Most is live at node {} of {}; the run allocates {} for this Program, {:.1f} % above the least that its order "
      "allows.",
      m.peak, n - 1, format_bytes(m.total),
      m.lower_bound > 0 ? 100.0 * static_cast<double>(m.scratch - m.lower_bound) / static_cast<double>(m.lower_bound)
                        : 0.0);
  return part;
}

io::ReportPart holders_part(const Program& p) {
  io::ReportPart part{"What holds the peak", "", "", {}, {{"value", "size"}, {}}};
  for (const std::string& h : p.memory.holders) {
    const size_t colon = h.rfind(": ");
    part.table.rows.push_back({h.substr(0, colon), h.substr(colon + 2)});
  }
  return part;
}

void add_time_parts(io::Report& report, const Program& p, const std::vector<double>& seconds, Peak peak) {
  // A machine that was always busy when its peak was measured has shown here what it can do.
  for (size_t i = 0; i < seconds.size(); ++i)
    if (seconds[i] > 0) peak.flops_per_second = std::max(peak.flops_per_second, p.launches[i].flops() / seconds[i]);
  io::Roofline roof{peak.flops_per_second, peak.bytes_per_second, {}};
  std::vector<size_t> order(p.launches.size());
  double all = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const Launch& l = p.launches[i];
    order[i] = i;
    all += seconds[i];
    roof.points.push_back({fmt::format("{} {}", l.candidate.name, l.node.origin), l.flops(),
                           l.cost.bytes_read + l.cost.bytes_written, seconds[i]});
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return seconds[a] > seconds[b]; });
  io::ReportPart nodes{
      "Time per node",
      fmt::format("One step, each launch waited for: {:.2f} ms in {} launches. The percentage is that "
                  "of the limit which the launch meets first: {} flop/s, the fastest product that this machine has "
                  "shown, or {} B/s of its memory. Products and convolutions mostly meet the first, all else the "
                  "second; there more than 100 % has what finds its operands in caches, which are faster than memory.",
                  1e3 * all, order.size(), io::short_number(peak.flops_per_second),
                  io::short_number(peak.bytes_per_second)),
      "",
      {},
      {{"kernel", "us", "share", "GFLOP/s", "GB/s", "of limit"}, {}}};
  for (const size_t i : order) {
    const auto& point = roof.points[i];
    const double least = std::max(point.flops / peak.flops_per_second, point.bytes / peak.bytes_per_second);
    nodes.table.rows.push_back(
        {point.name, fmt::format("{:.1f}", 1e6 * seconds[i]), fmt::format("{:.1f} %", 100 * seconds[i] / all),
         fmt::format("{:.1f}", 1e-9 * point.flops / seconds[i]), fmt::format("{:.1f}", 1e-9 * point.bytes / seconds[i]),
         fmt::format("{:.0f} %", 100 * least / seconds[i])});
    if (nodes.table.rows.size() == 40) break;
  }
  report.parts.push_back(
      {"Roofline",
       "Each circle is a launch; its area is its share of the time. On the line, it is as fast as this "
       "machine can be.",
       io::roofline_chart(roof),
       {},
       {}});
  report.parts.push_back(std::move(nodes));
}

// Names of what is measured on test data, for people.
constexpr struct {
  std::string_view name, shown, unit;
} kShownMetrics[] = {{"accuracy", "accuracy", "%"},
                     {"perplexity", "perplexity", ""},
                     {"iou", "IoU", ""},
                     {"r2", "R2", ""},
                     {"rmse", "RMSE", ""},
                     {"mae", "MAE", ""},
                     {"psnr", "PSNR", "dB"},
                     {"input_psnr", "PSNR of the input", "dB"}};

// Of what was measured more than once; the last value stands among the facts.
void add_metric_parts(io::Report& report, const Curves& curves) {
  for (const auto& [name, shown, unit] : kShownMetrics) {
    const auto other = curves.others.find(std::string(name));
    if (name != "accuracy" && other == curves.others.end()) continue;
    io::LineChart chart{"step", std::string(unit), {name == "accuracy" ? curves.accuracy : other->second}};
    chart.lines[0].name = shown;
    if (chart.lines[0].x.size() < 2 || name == "input_psnr") continue;
    if (const auto input = curves.others.find("input_psnr"); name == "psnr" && input != curves.others.end()) {
      chart.lines[0].name = "output";
      chart.lines.push_back(input->second);
      chart.lines[1].name = "input";
    }
    std::string title = fmt::format("{} on test data", shown);
    if (name == "accuracy") title[0] = 'A';
    report.parts.push_back({std::move(title), "", io::line_chart(chart), {}, {}});
  }
}

void add_facts(io::Report& report, const std::string& run) {
  io::PosixFs fs;
  const std::string path = io::join_path(run, "summary.json");
  if (!io::info_at(fs, path)) return;
  const auto j = nlohmann::json::parse(read_text(fs, path), nullptr, false);
  const auto number = [&](const char* key, auto&& text) {
    if (j.is_object() && j.contains(key) && j[key].is_number()) text(j[key].get<double>());
  };
  const auto fact = [&](const char* name, std::string value) { report.facts.emplace_back(name, std::move(value)); };
  for (const auto& metric : kShownMetrics)
    number(fmt::format("test_{}", metric.name).c_str(),
           [&](double v) { fact(fmt::format("test {}", metric.shown).c_str(), metric_text(metric.name, v)); });
  number("test_loss", [&](double v) { fact("test loss", fmt::format("{:.4f}", v)); });
  number("steps", [&](double v) { fact("steps", fmt::format("{:.0f}", v)); });
  number("training_seconds", [&](double v) { fact("training time", format_seconds(v)); });
  number("samples_per_second", [&](double v) { fact("samples per second", io::short_number(v)); });
  number("percent_of_peak", [&](double v) { fact("of the GEMM peak", fmt::format("{:.0f} %", v)); });
}

}  // namespace

std::string make_report(const std::string& run, const std::vector<std::string>& sets) {
  const Recipe r = load_run_recipe(run, sets);
  const Dataset dataset = open_dataset(r);
  // Before the rest is allocated.
  std::optional<io::ReportPart> text;
  if (is_text_run(run, sets) && dataset.eval) text = text_part(run, sets, *dataset.eval);
  CompileOptions o;
  o.eval = false;
  const bool pixels = r.data.target == "mask" || r.data.target == "image";
  const int64_t most = pixels ? 16 : 250;
  o.predict = std::max<int64_t>(1, std::min<int64_t>(dataset.eval ? dataset.eval->size() : 1, most));
  const Compiled c = compile(r, dataset.spec, o);
  const auto e = open_run(run, c);
  const Curves curves = read_metrics(io::join_path(run, "metrics.jsonl"));

  io::Report report;
  report.title = r.name;
  report.subtitle = fmt::format("{} on {}; {}", r.model.family, r.device.name, dataset.train->description());
  add_facts(report, run);
  report.parts.push_back({"Loss", "", io::line_chart({"step", "loss", {curves.loss, curves.eval_loss}}), {}, {}});
  add_metric_parts(report, curves);
  report.parts.push_back({"Learning rate", "", io::line_chart({"step", "rate", {curves.lr}}), {}, {}});
  report.parts.push_back({"Gradient norm", "", io::line_chart({"step", "norm", {curves.norm}}), {}, {}});

  if (text) report.parts.push_back(std::move(*text));
  if (dataset.eval)
    for (io::ReportPart& part : target_parts(*e, c, *dataset.eval)) report.parts.push_back(std::move(part));
  const bool labels_each = c.config.task == Task::classify && c.data.terms() == 1;
  if (dataset.eval && labels_each && c.data.classes <= kMostClasses) {
    const std::vector<std::string> labels = labels_of(r, c.data.classes);
    Outcome outcome = classify(*e, c, *dataset.eval, labels);
    report.parts.push_back({"Confusion matrix",
                            fmt::format("Rows: truth, columns: prediction; {} of {} test samples are right ({:.2f} %).",
                                        outcome.correct, outcome.samples,
                                        100.0 * static_cast<double>(outcome.correct) /
                                            static_cast<double>(std::max<int64_t>(1, outcome.samples))),
                            io::confusion_chart(labels, outcome.counts),
                            {},
                            {}});
    report.parts.push_back({"Wrong predictions", "", "", std::move(outcome.wrong), {}});
    report.parts.push_back({"Right predictions", "", "", std::move(outcome.right), {}});
  }

  const size_t program = c.program(c.schedule.accumulate > 1 ? "accumulate" : "train");
  const Program& step = c.set.programs[program];
  report.parts.push_back(memory_part(step));
  report.parts.push_back(holders_part(step));
  const std::vector<double> seconds = time_step(*e, c, program, *dataset.train);
  const DeviceName device = parse_device_name(r.device.name);
  const Peak peak = measure_peak(find_backend(device.backend), {device.index, static_cast<int>(r.device.threads)});
  add_time_parts(report, step, seconds, peak);
  return io::report_html(report);
}

std::string write_report(const std::string& run, const std::vector<std::string>& sets) {
  io::PosixFs fs;
  std::string path = io::join_path(run, "report.html");
  replace_text(fs, path, make_report(run, sets));
  return path;
}

}  // namespace lathe
