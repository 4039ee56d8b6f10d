#include "rundir/runs.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/page/report.h"
#include "io/run_lock.h"
#include "rundir/metrics_lines.h"
#include "rundir/open_run.h"
#include "rundir/progress.h"
#include "rundir/run_checkpoints.h"
#include "rundir/run_dir.h"

namespace lathe {
namespace {

namespace stdfs = std::filesystem;

constexpr int64_t kMaxLogBytes = int64_t{1} << 30;
// Numbers of the run's bookkeeping, no curves.
constexpr std::string_view kNoCurves[] = {"step", "epoch", "skipped"};
// Of evaluations, by their set: how their names begin in metrics.jsonl, and in tables.
constexpr struct {
  std::string_view prefix, shown;
  bool best;  // the best of a run is of interest, not the last
} kSets[] = {{"validation_", "best validation ", true}, {"eval_", "test ", false}};

const auto* set_of(std::string_view curve) {
  const auto* found = std::ranges::find_if(kSets, [&](const auto& s) { return curve.starts_with(s.prefix); });
  return found == std::end(kSets) ? nullptr : found;
}

bool is_run(const stdfs::path& path) {
  std::error_code ec;
  return stdfs::is_regular_file(path / "recipe.toml", ec);
}

double modified_at(const std::string& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0 ? static_cast<double>(s.st_mtim.tv_sec) : 0;
}

void read_log(RunInfo& r, const std::string& path, const std::string& text) {
  const auto read = [&](int64_t step, const nlohmann::json& j, std::string_view) {
    r.step = std::max(r.step, step);
    for (const auto& [key, value] : j.items()) {
      if (!value.is_number() || std::ranges::find(kNoCurves, key) != std::end(kNoCurves)) continue;
      io::Line& curve = r.curves[key];
      curve.x.push_back(static_cast<double>(step));
      curve.y.push_back(value.get<double>());
    }
    if (const auto skipped = j.find("skipped"); skipped != j.end() && skipped->is_number_integer())
      r.skipped = skipped->get<int64_t>();
    if (const auto epoch = j.find("epoch"); epoch != j.end() && epoch->is_number() && epoch->get<double>() > 0)
      r.total_steps =
          std::llround(static_cast<double>(step) / epoch->get<double>() * static_cast<double>(r.recipe.train.epochs));
  };
  r.warnings = each_metrics_line(text, read).texts(path);
  if (r.recipe.train.steps > 0) r.total_steps = r.recipe.train.steps;
}

template <class T>
std::optional<T> member(const nlohmann::json& j, const char* key) {
  const auto it = j.is_object() ? j.find(key) : j.end();
  if (it == j.end() || !it->is_number()) return {};
  return it->get<T>();
}

void read_state(RunInfo& r, const nlohmann::json& summary) {
  const int64_t steps = member<int64_t>(summary, "steps").value_or(-1);
  if (io::is_run_alive(r.path)) {
    r.state = RunState::running;
  } else if (steps < r.step) {
    r.state = RunState::failed;  // no summary, or one of an earlier part of the run
  } else {
    const auto preempted = summary.find("preempted");
    r.state = preempted != summary.end() && *preempted == true ? RunState::stopped : RunState::finished;
    r.step = steps;  // not every step is logged
    r.skipped = std::max(r.skipped, member<int64_t>(summary, "skipped_steps").value_or(0));
  }
}

// How long a run without a summary trained: up to its newest checkpoint by what that says, from there, or from the
// beginning of its last part, by the clock.
void estimate_seconds(RunInfo& r, io::Fs& fs, const std::string& recipe, const std::string& log) {
  const double end = modified_at(log);
  if (end == 0) return;
  double begin = modified_at(recipe), known = 0;  // each part rewrites its recipe
  const std::string checkpoints = io::join_path(r.path, kCheckpointFolder);
  if (const auto steps = io::list_steps(fs, checkpoints); !steps.empty()) {
    const std::string manifest =
        io::join_path(io::join_path(checkpoints, io::step_name(steps.back())), "manifest.json");
    try {
      const auto info = io::parse_manifest(read_text(fs, manifest)).info;
      if (const auto it = info.find(kSecondsInfo); it != info.end()) {
        known = std::strtod(it->second.c_str(), nullptr);
        begin = std::max(begin, modified_at(manifest));
      }
      if (const auto it = info.find(kTimedFromInfo); it != info.end())
        r.timed_from = std::strtoll(it->second.c_str(), nullptr, 10);
    } catch (const Error&) {
      // Damaged, or just replaced by a newer one: the clock is left.
    }
  }
  r.seconds = known + std::max(0.0, end - begin);
}

bool is_score(std::string_view curve) {
  return curve.find("accuracy") != curve.npos || curve.find("iou") != curve.npos || curve.find("psnr") != curve.npos ||
         curve.find("r2") != curve.npos;
}

std::vector<std::string> curve_names(const std::vector<RunInfo>& runs) {
  std::vector<std::string> names;
  for (const RunInfo& r : runs)
    for (const auto& [name, line] : r.curves)
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  // Evaluations first: they are what runs are compared by.
  const auto place = [](const std::string& name) { return set_of(name) ? set_of(name) - kSets : std::ssize(kSets); };
  std::ranges::stable_sort(names, [&](const std::string& a, const std::string& b) { return place(a) < place(b); });
  return names;
}

// What a curve is called for people: eval_loss is that of the test set.
std::string title_of(const std::string& curve) {
  if (curve.starts_with("eval_")) return fmt::format("{} (test)", curve);
  return curve == "loss" ? "loss (training)" : curve;
}

std::string name_of(const RunInfo& r) {
  const std::string name = stdfs::path(r.path).lexically_normal().filename().string();
  return name.empty() || name == "." ? r.path : name;
}

std::vector<RunInfo> readable(const std::vector<RunInfo>& runs) {
  std::vector<RunInfo> out;
  for (const RunInfo& r : runs)
    if (r.state != RunState::unreadable) out.push_back(r);
  return out;
}

io::LineChart overlaid(const std::vector<RunInfo>& runs, const std::string& curve, const std::string& label) {
  io::LineChart chart{"step", label, {}};
  for (const RunInfo& r : runs) {
    io::Line line{name_of(r), {}, {}};
    if (const auto it = r.curves.find(curve); it != r.curves.end()) {
      line.x = it->second.x;
      line.y = it->second.y;
    }
    chart.lines.push_back(std::move(line));  // a run without it keeps its colour in the other charts
  }
  return chart;
}

std::string cell(const RunInfo& r, const std::string& curve) {
  const auto* set = set_of(curve);
  const auto v = set->best ? r.best(curve) : r.last(curve);
  return v ? metric_text(curve.substr(set->prefix.size()), *v) : "-";
}

}  // namespace

std::string_view to_string(RunState s) {
  switch (s) {
    case RunState::running: return "running";
    case RunState::finished: return "finished";
    case RunState::stopped: return "stopped";
    case RunState::failed: return "failed";
    case RunState::unreadable: return "unreadable";
  }
  return "";
}

std::optional<double> RunInfo::best(const std::string& curve) const {
  const auto it = curves.find(curve);
  if (it == curves.end() || it->second.y.empty()) return {};
  const auto& y = it->second.y;
  return is_score(curve) ? *std::ranges::max_element(y) : *std::ranges::min_element(y);
}

std::optional<double> RunInfo::last(const std::string& curve) const {
  const auto it = curves.find(curve);
  return it == curves.end() || it->second.y.empty() ? std::optional<double>() : it->second.y.back();
}

std::vector<std::string> find_runs(const std::string& dir) {
  std::error_code ec;
  if (!stdfs::is_directory(dir, ec))
    throw UserError(fmt::format("{}: no such directory; `lathe train` makes runs/NAME-TIME", dir), Exit::missing_input);
  if (is_run(dir)) return {dir};
  std::vector<std::string> out;
  for (const auto& entry : stdfs::directory_iterator(dir, ec))
    if (is_run(entry.path())) out.push_back(entry.path().string());
  std::ranges::sort(out);
  return out;
}

RunInfo read_run(const std::string& path) {
  RunInfo r;
  r.path = path;
  io::PosixFs fs;
  try {
    const std::string recipe = io::join_path(path, "recipe.toml"), log = io::join_path(path, "metrics.jsonl"),
                      summary_path = io::join_path(path, kSummaryFile);
    r.recipe = parse_foreign_recipe(read_text(fs, recipe), recipe);
    if (io::info_at(fs, log)) read_log(r, log, read_text(fs, log, kMaxLogBytes));
    nlohmann::json summary;
    if (io::info_at(fs, summary_path))
      summary = nlohmann::json::parse(read_text(fs, summary_path, kMaxLogBytes), nullptr, false);
    read_state(r, summary);
    if (r.state == RunState::finished || r.state == RunState::stopped) {
      r.seconds = member<double>(summary, "training_seconds");
      r.timed_from = member<int64_t>(summary, "timed_from_step").value_or(0);
    } else {
      estimate_seconds(r, fs, recipe, log);
    }
  } catch (const Error& e) {
    r.state = RunState::unreadable;
    r.problem = e.what();
  }
  return r;
}

std::vector<RunDifference> run_differences(const std::vector<RunInfo>& all) {
  const std::vector<RunInfo> runs = readable(all);
  std::vector<RunDifference> out;
  if (runs.size() < 2) return out;
  for (size_t i = 1; i < runs.size(); ++i)
    for (const RecipeDifference& d : diff(runs[0].recipe, runs[i].recipe)) {
      if (std::ranges::find(out, d.key, &RunDifference::key) != out.end()) continue;
      out.push_back({d.key, {}});
      for (const RunInfo& r : runs) out.back().values.push_back(value_text(r.recipe, d.key));
    }
  return out;
}

io::ReportTable runs_table(const std::vector<RunInfo>& runs) {
  io::ReportTable t{{"run", "recipe", "model", "device", "steps"}, {}};
  std::vector<std::string> evaluated;
  for (const std::string& name : curve_names(runs))
    if (set_of(name) && !name.ends_with("input_psnr")) evaluated.push_back(name);
  for (const std::string& name : evaluated)
    t.header.push_back(fmt::format("{}{}", set_of(name)->shown, name.substr(set_of(name)->prefix.size())));
  const bool any_skipped = std::ranges::any_of(runs, [](const RunInfo& r) { return r.skipped > 0; });
  if (any_skipped) t.header.emplace_back("refused");
  t.header.insert(t.header.end(), {"time", "state"});
  for (const RunInfo& r : runs) {
    const bool known = r.state != RunState::unreadable;
    std::vector<std::string> row{name_of(r), known ? r.recipe.name : "-",
                                 known ? r.recipe.model.family + (is_foreign(r.recipe) ? " (of a program)" : "") : "-",
                                 known ? r.recipe.device.name : "-",
                                 !known || r.step == r.total_steps || !r.total_steps
                                     ? std::to_string(r.step)
                                     : fmt::format("{} of {}", r.step, *r.total_steps)};
    for (const std::string& name : evaluated) row.push_back(cell(r, name));
    if (any_skipped) row.push_back(known ? std::to_string(r.skipped) : "-");
    row.push_back(r.seconds ? (r.timed_from > 0 ? "> " : "") + format_seconds(*r.seconds) : "-");
    row.emplace_back(to_string(r.state));
    t.rows.push_back(std::move(row));
  }
  return t;
}

std::vector<std::string> narrow_runs_table(io::ReportTable& t, size_t width) {
  const auto widest = [&](size_t i) {
    size_t w = t.header[i].size();
    for (const auto& row : t.rows) w = std::max(w, row[i].size());
    return w;
  };
  const auto fits = [&] {
    size_t total = 2 * (t.header.size() - 1);
    for (size_t i = 0; i < t.header.size(); ++i) total += widest(i);
    return total <= width;
  };
  std::vector<std::string> out;
  const auto drop = [&](size_t i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    out.push_back(t.header[i]);
    t.header.erase(t.header.begin() + at);
    for (auto& row : t.rows) row.erase(row.begin() + at);
  };
  const auto drop_named = [&](const auto& goes) {
    for (size_t i = t.header.size(); i-- > 1 && !fits();)
      if (goes(t.header[i])) drop(i);
  };
  // The device is mostly one for all, the model and the recipe are often in the name of the run.
  for (const std::string_view name : {"device", "model", "recipe"})
    drop_named([&](const std::string& column) { return column == name; });
  const auto measured = [](const std::string& column) {
    return std::ranges::any_of(kSets, [&](const auto& s) { return column.starts_with(s.shown); });
  };
  drop_named([&](const std::string& column) { return measured(column) && !column.ends_with(" loss"); });
  drop_named([&](const std::string& column) { return measured(column) || column == "refused"; });
  return out;
}

io::ReportTable differences_table(const std::vector<RunInfo>& all) {
  io::ReportTable t{{"key"}, {}};
  for (const RunInfo& r : readable(all)) t.header.push_back(name_of(r));
  for (const RunDifference& d : run_differences(all)) {
    std::vector<std::string> row{d.key};
    row.insert(row.end(), d.values.begin(), d.values.end());
    t.rows.push_back(std::move(row));
  }
  return t;
}

std::string compare_html(const std::vector<RunInfo>& all) {
  const std::vector<RunInfo> runs = readable(all);
  io::Report page;
  page.title = "Runs";
  page.subtitle = fmt::format("{} runs compared", runs.size());
  page.parts.push_back({"Runs", "", "", {}, runs_table(runs)});
  page.parts.push_back({"Recipe keys that differ", "", "", {}, differences_table(runs)});
  for (const std::string& name : curve_names(runs))
    page.parts.push_back({title_of(name), "", io::line_chart(overlaid(runs, name, "")), {}, {}});
  return io::report_html(page);
}

std::string compare_svg(const std::vector<RunInfo>& all) {
  const std::vector<RunInfo> runs = readable(all);
  const auto evaluated = [](const RunInfo& r, const char* curve) { return r.last(curve).has_value(); };
  const bool validated = std::ranges::all_of(
      runs, [&](const RunInfo& r) { return evaluated(r, "validation_loss") || !evaluated(r, "eval_loss"); });
  for (const auto& [curve, label] : {std::pair{"validation_loss", "validation loss"}, {"eval_loss", "test loss"}}) {
    if (std::string_view(curve) == "validation_loss" && !validated) continue;
    if (std::string picture = io::svg_file(overlaid(runs, curve, label)); !picture.empty()) return picture;
  }
  return io::svg_file(overlaid(runs, "loss", "training loss"));
}

}  // namespace lathe
