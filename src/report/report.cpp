#include "report/report.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/stopwatch.h"
#include "io/page/report.h"
#include "io/run_lock.h"
#include "loop/trainer.h"
#include "nn/step/loss.h"
#include "predict/text_writer.h"
#include "report/report_classes.h"
#include "report/report_cost.h"
#include "report/report_labels.h"
#include "report/report_ranks.h"
#include "rundir/metrics_lines.h"
#include "rundir/progress.h"
#include "rundir/run_data.h"
#include "rundir/run_dir.h"
#include "session/state.h"

namespace lathe {
namespace {

constexpr int64_t kMaxMetricsBytes = int64_t{1} << 30;
constexpr int64_t kMaxSummaryBytes = int64_t{1} << 26;  // a row for each rank
constexpr size_t kPromptBytes = 60, kWrittenBytes = 320;
constexpr int64_t kBytesAtOnce = 8;
constexpr double kWritingSeconds = 1.5;

// The sets that are evaluated: how their numbers begin in metrics.jsonl, and in summary.json.
constexpr struct { const char *name, *logged; } kSets[] = {{"validation", "validation_"}, {"test", "eval_"}};

struct Curves {
  io::Line loss{"training", {}, {}}, lr{"rate", {}, {}}, norm{"norm", {}, {}};
  std::map<std::string, io::Line> evaluated[std::size(kSets)];  // by set: "loss", "accuracy" (of 100), "rmse", ...
  std::map<std::string, io::Line> added;                        // what passes of the program measured
  double last_step = 0, refused = 0;                            // refused: steps so far
  std::vector<std::string> problems;                            // of the file, a sentence each
  bool last_refused = false;  // the last line of a step has a loss or a norm that is no number
};

Curves read_metrics(const std::string& path) {
  io::PosixFs fs;
  Curves c;
  if (!io::info_at(fs, path)) return c;
  const auto read = [&](int64_t step, const nlohmann::json& j, std::string_view) {
    const auto add = [&](io::Line& to, const char* key, double factor = 1) {
      const auto v = j.find(key);
      if (v == j.end() || !v->is_number()) return;
      to.x.push_back(static_cast<double>(step));
      to.y.push_back(factor * v->get<double>());
    };
    c.last_step = std::max(c.last_step, static_cast<double>(step));
    if (j.contains("skipped") && j["skipped"].is_number()) c.refused = j["skipped"].get<double>();
    if (j.contains("loss") && j.contains("grad_norm")) c.last_refused = j["loss"].is_null() || j["grad_norm"].is_null();
    add(c.loss, "loss");
    add(c.lr, "lr");
    add(c.norm, "grad_norm");
    static constexpr std::string_view kOfEveryStep[] = {"step",      "epoch",   "loss",      "lr",
                                                        "grad_norm", "skipped", "loss_scale"};
    if (j.contains("grad_norm"))
      for (const auto& [key, value] : j.items())
        if (std::ranges::find(kOfEveryStep, key) == std::end(kOfEveryStep) && c.added.size() < 16) {
          c.added[key].name = key;
          add(c.added[key], key.c_str());
        }
    for (size_t i = 0; i < std::size(kSets); ++i)
      for (const auto& [key, value] : j.items())
        if (key.starts_with(kSets[i].logged) && c.evaluated[i].size() < 16) {
          const std::string name = key.substr(std::string_view(kSets[i].logged).size());
          io::Line& curve = c.evaluated[i][name];
          curve.name = kSets[i].name;
          add(curve, key.c_str(), name == "accuracy" ? 100 : 1);
        }
  };
  c.problems = each_metrics_line(read_text(fs, path, kMaxMetricsBytes), read).texts(path);
  return c;
}

// What a text model makes of the beginning of a set; as much as it can write in a short time.
io::ReportPart text_part(const std::string& run, const std::vector<std::string>& sets, const data::Source& source,
                         const char* set) {
  std::vector<int32_t> tokens(static_cast<size_t>(source.fields()[0].type.numel())), next = tokens;
  const std::span<std::byte> spans[] = {std::as_writable_bytes(std::span(tokens)),
                                        std::as_writable_bytes(std::span(next))};
  source.read(0, spans);
  io::ReportPart part{
      "What it writes", fmt::format("The beginning is from the {} set, what follows is the model's.", set), "", {}, {}};
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
  part.written = io::readable_text(text.substr(part.prompt.size()));
  part.prompt = io::readable_text(part.prompt);
  return part;
}

// Names of what is measured, for people.
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

// What a number is called of this run.
std::string shown_name(const Recipe& r, const std::optional<DataSpec>& data, std::string_view name,
                       std::string_view shown) {
  if (name == "accuracy" && learns_embedding(r.train.loss)) return "accuracy of the nearest neighbour";
  if ((name == "rmse" || name == "mae") && label_kind_of(r) == data::LabelKind::value && data && data->terms() > 1)
    return fmt::format("{} in deviations", shown);
  return std::string(shown);
}

// Of what was measured more than once; the last value stands among the facts.
void add_metric_parts(io::Report& report, const Curves& curves, const Recipe& r, const std::optional<DataSpec>& data) {
  for (size_t i = 0; i < std::size(kSets); ++i) {
    const auto& of_set = curves.evaluated[i];
    for (const auto& [name, shown, unit] : kShownMetrics) {
      const auto found = of_set.find(std::string(name));
      if (found == of_set.end() || found->second.x.size() < 2 || name == "input_psnr") continue;
      io::LineChart chart{"step", std::string(unit), {found->second}};
      chart.lines[0].name = shown;
      if (const auto input = of_set.find("input_psnr"); name == "psnr" && input != of_set.end()) {
        chart.lines[0].name = "output";
        chart.lines.push_back(input->second);
        chart.lines[1].name = "input";
      }
      std::string title = fmt::format("{} on {} data", shown_name(r, data, name, shown), kSets[i].name);
      if (name == "accuracy") title[0] = 'A';
      report.parts.push_back({std::move(title), "", io::line_chart(chart), {}, {}});
    }
  }
}

// summary.json, where it is that of the run's last step: a run that failed after it was resumed has an older one.
nlohmann::json read_summary(const std::string& run, const Curves& curves) {
  io::PosixFs fs;
  const std::string path = io::join_path(run, kSummaryFile);
  if (!io::info_at(fs, path)) return nullptr;
  const auto j = nlohmann::json::parse(read_text(fs, path, kMaxSummaryBytes), nullptr, false);
  const bool whole = j.is_object() && j.contains("steps") && j["steps"].is_number();
  return whole && j["steps"].get<double>() >= curves.last_step ? j : nullptr;
}

// How the run ended, where that was not as its recipe says.
std::string note_about_end(const std::string& run, const nlohmann::json& summary, const Curves& curves) {
  if (io::is_run_alive(run)) return fmt::format("The run is at work: it has logged {:.0f} steps.", curves.last_step);
  if (summary.is_object() && summary.contains("preempted") && summary["preempted"] == true)
    return fmt::format("The run was stopped by a signal at step {:.0f}; `lathe train --resume --out {}` continues.",
                       summary["steps"].get<double>(), run);
  if (summary.is_object()) return "";
  return curves.last_refused ? fmt::format(
                                   "The run ended at step {:.0f}: loss and gradient norm of the step were not both "
                                   "finite. The weights are those before it; a lower optimizer.lr or "
                                   "train.clip_norm may help.",
                                   curves.last_step)
                             : fmt::format("The run did not come to its end: the last step that it logged is {:.0f}.",
                                           curves.last_step);
}

void add_facts(io::Report& report, const nlohmann::json& summary, const Curves& curves, const Recipe& r,
               const std::optional<DataSpec>& data) {
  const auto fact = [&](const std::string& name, std::string value) {
    report.facts.emplace_back(name, std::move(value));
  };
  const auto last_of = [&](size_t set, std::string_view name) -> std::optional<double> {
    const auto found = curves.evaluated[set].find(std::string(name));
    if (found == curves.evaluated[set].end() || found->second.y.empty()) return {};
    return name == "accuracy" ? found->second.y.back() / 100 : found->second.y.back();
  };
  const auto number = [&](const std::string& key) -> std::optional<double> {
    if (!summary.is_object() || !summary.contains(key) || !summary[key].is_number()) return {};
    return summary[key].get<double>();
  };
  for (size_t i = 0; i < std::size(kSets); ++i) {
    const std::string set = kSets[i].name, loss = set + "_loss";
    const auto measured = [&](std::string_view name) {
      return summary.is_object() ? number(fmt::format("{}_{}", set, name)) : last_of(i, name);
    };
    // Outputs that are no numbers have no loss, and yet a largest one: their accuracy means nothing.
    const bool none = summary.is_object() && summary.contains(loss) && summary[loss].is_null();
    for (const auto& metric : kShownMetrics)
      if (const auto v = measured(metric.name))
        fact(fmt::format("{} {}", set, shown_name(r, data, metric.name, metric.shown)),
             none ? "no number" : metric_text(metric.name, *v));
    if (const auto v = measured("loss")) fact(set + " loss", fmt::format("{:.4f}", *v));
  }
  fact("steps", fmt::format("{:.0f}", number("steps").value_or(curves.last_step)));
  if (curves.refused > 0) fact("steps refused", fmt::format("{:.0f}", curves.refused));
  if (const auto v = number("training_seconds")) fact("training time", format_seconds(*v));
  if (const auto v = number("samples_per_second")) fact("samples per second", io::short_number(*v));
  if (const auto v = number("ranks"); v && *v > 1) fact("ranks", fmt::format("{:.0f}", *v));
  if (const auto v = number("percent_of_peak")) fact("of the GEMM peak", fmt::format("{:.0f} %", *v));
}

io::ReportPart recipe_part(const Recipe& r) {
  io::ReportPart part{
      "Recipe", "Keys that differ from their defaults; recipe.toml has all.", "", {}, {{"key", "value"}, {}}};
  for (const RecipeDifference& d : diff(Recipe(), r)) part.table.rows.push_back({d.key, io::readable_text(d.b)});
  return part;
}

io::ReportPart missing_part(std::string title, const std::string& reason) {
  io::ReportPart part{std::move(title), "", "", {}, {}};
  part.missing = "Cannot be made: " + io::readable_text(reason);
  return part;
}

// What f throws for files and devices that are not as it needs them; empty: it has done its work.
template <class F>
std::string obstacle(F&& f) {
  try {
    f();
    return "";
  } catch (const UserError& e) {
    return e.what();
  } catch (const DeviceError& e) {
    return e.what();
  }
}

void append(io::Report& report, std::vector<io::ReportPart> parts) {
  for (io::ReportPart& part : parts) report.parts.push_back(std::move(part));
}

// The beginning of a page: all that follows from the run's own files.
struct Logged {
  io::Report report;
  int ranks = 1;  // that trained
};

Logged logged(const std::string& run, const Recipe& r, const std::optional<DataSpec>& data) {
  const Curves curves = read_metrics(io::join_path(run, "metrics.jsonl"));
  const nlohmann::json summary = read_summary(run, curves);
  Logged out;
  if (summary.is_object() && summary.contains("ranks") && summary["ranks"].is_number_integer())
    out.ranks = std::clamp(summary["ranks"].get<int>(), 1, 1 << 20);
  io::Report& report = out.report;
  report.title = r.name;
  report.subtitle = fmt::format("{} on {}", r.model.family, r.device.name);
  report.note = note_about_end(run, summary, curves);
  for (const std::string& problem : curves.problems)
    report.note += fmt::format("{}{}.", report.note.empty() ? "" : " ", io::readable_text(problem));
  add_facts(report, summary, curves, r, data);
  io::LineChart losses{"step", "loss", {curves.loss}};
  for (const auto& of_set : curves.evaluated)
    if (const auto found = of_set.find("loss"); found != of_set.end()) losses.lines.push_back(found->second);
  report.parts.push_back({"Loss", "", io::line_chart(losses), {}, {}});
  if (report.parts[0].svg.empty()) report.parts[0].missing = "No step with a loss that is a number was logged.";
  add_metric_parts(report, curves, r, data);
  report.parts.push_back({"Learning rate", "", io::line_chart({"step", "rate", {curves.lr}}), {}, {}});
  report.parts.push_back({"Gradient norm", "", io::line_chart({"step", "norm", {curves.norm}}), {}, {}});
  for (const auto& [name, line] : curves.added)
    report.parts.push_back(
        {name, "Measured by a pass of the program.", io::line_chart({"step", name, {line}}), {}, {}});
  append(report, rank_parts(run, summary));
  return out;
}

// With the weights of the run's checkpoint where there is one, else with the first ones; why: as obstacle().
struct Opened {
  std::unique_ptr<Session> session;
  std::string untrained, none;
};

Opened open_for_report(const std::string& run, const Compiled& c) {
  Opened out;
  out.untrained = obstacle([&] { out.session = open_run(run, c); });
  if (out.session) return out;
  out.none = obstacle([&] {
    out.session = open_session(c);
    out.session->initialize(c.recipe.seed);
  });
  return out;
}

}  // namespace

std::string make_report(const std::string& run, const std::vector<std::string>& sets) {
  const Recipe r = load_run_recipe(run, sets);
  Dataset dataset;
  std::optional<DataSpec> spec;
  const std::string no_data = obstacle([&] {
    dataset = open_dataset(r);
    spec = dataset.spec;
  });
  std::string no_plan;
  if (!spec) no_plan = obstacle([&] { spec = load_run_data(run, r).spec; });
  Logged begun = logged(run, r, spec);
  io::Report& report = begun.report;
  const int ranks = begun.ranks;
  if (dataset.train) report.subtitle += "; " + io::readable_text(dataset.train->description());

  // What the net makes of samples that it has not seen.
  const data::Split split = dataset.test ? data::Split::test : data::Split::validation;
  const data::Source* unseen = dataset.of(split);
  const char* set = data::to_string(split);

  // Before the rest is allocated.
  if (is_text_run(run, sets) && unseen) {
    std::optional<io::ReportPart> text;
    const std::string reason = obstacle([&] { text = text_part(run, sets, *unseen, set); });
    report.parts.push_back(text ? std::move(*text) : missing_part("What it writes", reason));
  }
  CompileOptions o;
  o.eval = false;
  o.passes = passes_of_run(run);
  const bool pixels = label_kind_of(r) == data::LabelKind::mask || label_kind_of(r) == data::LabelKind::image;
  const int64_t most = pixels ? 16 : 250;
  o.predict = std::max<int64_t>(1, std::min<int64_t>(unseen ? unseen->size() : 1, most));
  std::optional<Compiled> c;
  if (spec) no_plan = obstacle([&] { c = compile(r, *spec, o); });
  Opened opened;
  if (c && dataset.train) opened = open_for_report(run, *c);

  const std::string no_run = !no_data.empty() ? no_data : !no_plan.empty() ? no_plan : opened.none;
  if (const std::string& reason = no_run.empty() ? opened.untrained : no_run; !reason.empty()) {
    report.parts.push_back(missing_part("Predictions", reason));
  } else if (unseen) {
    append(report, label_parts(opened.session->executor(), *c, *unseen, set));
    append(report, class_parts(opened.session->executor(), *c, *unseen, set, class_names(r)));
  }
  std::optional<Compiled> of_rank;
  if (c && ranks > 1) {
    o.mesh = {ranks, 0};
    o.predict = 0;
    no_plan = obstacle([&] { of_rank = compile(r, *spec, o); });
  }
  if (c && no_plan.empty())
    append(report, memory_parts(of_rank ? *of_rank : *c));
  else
    report.parts.push_back(missing_part("Memory over one step", no_plan));
  if (no_run.empty()) {
    append(report, time_parts(opened.session->executor(), *c, *dataset.train));
    if (ranks > 1) report.parts.back().text += " This is one rank with all of the batch.";
  } else
    report.parts.push_back(missing_part("Time per node", no_run));
  report.parts.push_back(recipe_part(r));
  return io::report_html(report);
}

std::string make_short_report(const std::string& run, const Compiled& c) {
  io::Report report = logged(run, c.recipe, c.data).report;
  append(report, memory_parts(c));
  report.parts.push_back({"Predictions, time per node", "", "", {}, {}});
  report.parts.back().missing = fmt::format("Not measured yet: `lathe report {}` does it.", run);
  report.parts.push_back(recipe_part(c.recipe));
  return io::report_html(report);
}

namespace {

std::string write_page(const std::string& run, const std::string& html) {
  io::PosixFs fs;
  std::string path = io::join_path(run, "report.html");
  replace_text(fs, path, html);
  return path;
}

}  // namespace

std::string write_report(const std::string& run, const std::vector<std::string>& sets) {
  return write_page(run, make_report(run, sets));
}

std::string write_short_report(const std::string& run, const Compiled& c) {
  return write_page(run, make_short_report(run, c));
}

}  // namespace lathe
