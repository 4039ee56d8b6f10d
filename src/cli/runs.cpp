// lathe runs: lists run directories and compares them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace lathe::cli {
namespace {

using Json = nlohmann::ordered_json;

Json run_json(const RunInfo& r) {
  const auto number = [](const auto& v) { return v ? Json(*v) : Json(nullptr); };
  Json j{{"path", r.path}, {"state", to_string(r.state)}};
  if (r.state == RunState::unreadable) {
    j["problem"] = r.problem;
    return j;
  }
  j["recipe"] = r.recipe.name;
  j["model"] = r.recipe.model.family;
  j["device"] = r.recipe.device.name;
  j["step"] = r.step;
  j["total_steps"] = number(r.total_steps);
  j["skipped"] = r.skipped;
  j["seconds"] = number(r.seconds);
  j["timed_from_step"] = r.timed_from;
  if (is_foreign(r.recipe)) j["model_of_a_program"] = true;
  // Of the validation set; of the test set nothing is chosen, so the last value stands.
  j["best"] = j["test"] = Json::object();
  for (const auto& [name, line] : r.curves) {
    if (name.starts_with("validation_")) j["best"][name.substr(11)] = number(r.best(name));
    if (name.starts_with("eval_")) j["test"][name.substr(5)] = number(r.last(name));
  }
  if (!r.warnings.empty()) j["warnings"] = r.warnings;
  return j;
}

constexpr size_t kWidestCell = 40;

// Names of runs say most at their ends, paths too: the middle is left out.
std::string shortened(const std::string& cell) {
  if (cell.size() <= kWidestCell) return cell;
  const auto inside_letter = [&](size_t i) { return (static_cast<unsigned char>(cell[i]) & 0xc0) == 0x80; };  // UTF-8
  size_t head = kWidestCell / 2 - 1, tail = cell.size() - (kWidestCell - 3 - head);
  while (head > 0 && inside_letter(head)) --head;
  while (tail < cell.size() && inside_letter(tail)) ++tail;
  return cell.substr(0, head) + "..." + cell.substr(tail);
}

io::ReportTable with_short_cells(io::ReportTable t) {
  for (std::string& cell : t.header) cell = shortened(cell);
  for (auto& row : t.rows)
    for (std::string& cell : row) cell = shortened(cell);
  return t;
}

// Columns as wide as their widest cell; the first to the left.
void print_table(const io::ReportTable& t) {
  std::vector<size_t> widths(t.header.size(), 0);
  const auto widen = [&](const std::vector<std::string>& row) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  };
  widen(t.header);
  for (const auto& row : t.rows) widen(row);
  const auto print = [&](const std::vector<std::string>& row) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (size_t i = 1; i < row.size(); ++i) line += fmt::format("  {:>{}}", row[i], widths[i]);
    fmt::print("{}\n", line);
  };
  print(t.header);
  for (const auto& row : t.rows) print(row);
}

void write_curves(const std::string& path, const std::vector<RunInfo>& runs) {
  const bool html = path.ends_with(".html");
  if (!html && !path.ends_with(".svg"))
    throw UserError(fmt::format("--curves: expected a file name that ends in .svg or .html, got {}", path),
                    Exit::usage);
  const std::string text = html ? compare_html(runs) : compare_svg(runs);
  if (text.empty()) throw UserError("--curves: no run has a finite loss to draw", Exit::bad_data);
  io::replace_file(path, text);
}

}  // namespace

void add_runs(CLI::App& app, int&) {
  struct Options {
    std::vector<std::string> dirs;
    std::string curves;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd =
      app.add_subcommand("runs", "List runs: how far, how well, how long; compare their recipes and curves");
  cmd->add_option("DIR", o->dirs, "Run directories, or directories of runs; default: runs");
  cmd->add_option("--curves", o->curves,
                  "Draw the curves of all of them over each other: FILE.html (every curve, tables) or FILE.svg (the "
                  "validation loss, else the test loss)")
      ->type_name("FILE")
      ->check(not_empty());
  cmd->add_flag("--json", o->json, "Print the result as JSON");
  cmd->footer(
      "Example: lathe runs\n"
      "         lathe runs runs/a runs/b --curves compared.html\n"
      "States: running, finished, stopped (by a signal: go on with --resume), failed (an error, or killed), "
      "unreadable.\n"
      "Runs that are named one by one are compared: the keys of their recipes that differ are listed.");
  cmd->callback([o] {
    std::vector<RunInfo> runs;
    bool named = true;  // each DIR is a run, and there are several
    for (const std::string& dir : o->dirs.empty() ? std::vector<std::string>{"runs"} : o->dirs) {
      const std::vector<std::string> found = find_runs(dir);
      named = named && found == std::vector<std::string>{dir};
      for (const std::string& path : found) runs.push_back(read_run(path));
    }
    for (const RunInfo& r : runs)
      for (const std::string& what : r.warnings) fmt::print(stderr, "lathe: warning: {}\n", what);
    const bool compares = runs.size() > 1 && (named || !o->curves.empty());
    if (!o->curves.empty()) write_curves(o->curves, runs);
    if (o->json) {
      Json all{{"runs", Json::array()}};
      for (const RunInfo& r : runs) all["runs"].push_back(run_json(r));
      if (compares) {
        all["differences"] = Json::array();
        for (const RunDifference& d : run_differences(runs))
          all["differences"].push_back({{"key", d.key}, {"values", d.values}});
      }
      if (!o->curves.empty()) all["curves"] = o->curves;
      fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
      return;
    }
    if (runs.empty()) {
      fmt::print("no runs\n");
      return;
    }
    io::ReportTable table = with_short_cells(runs_table(runs));
    std::vector<std::string> left_out;
    // A file or a pipe has no width.
    if (is_terminal(stdout)) left_out = narrow_runs_table(table, static_cast<size_t>(terminal_columns(stdout)));
    print_table(table);
    if (!left_out.empty()) fmt::print("left out to fit: {}; --json has all\n", fmt::join(left_out, ", "));
    for (const RunInfo& r : runs)
      if (r.state == RunState::unreadable) fmt::print("{}: {}\n", r.path, r.problem);
    if (compares) {
      const io::ReportTable keys = differences_table(runs);
      fmt::print("\n");
      if (keys.rows.empty())
        fmt::print("the recipes are equal\n");
      else
        print_table(with_short_cells(keys));
    }
    if (!o->curves.empty()) fmt::print("\ncurves: {}\n", o->curves);
  });
}

}  // namespace lathe::cli
