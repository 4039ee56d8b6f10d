#include "rundir/run_dir.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "rundir/metrics_lines.h"

namespace lathe {

std::string job_id() {
  const char* slurm = std::getenv("SLURM_JOB_ID");
  return slurm && io::is_plain_name(slurm) ? slurm : std::to_string(getpid());
}

void check_same_recipe(io::Fs& fs, const std::string& run, const Recipe& recipe) {
  const std::string path = io::join_path(run, "recipe.toml");
  if (!io::info_at(fs, path)) return;
  std::vector<std::string> keys;
  for (const RecipeDifference& d : diff(parse_recipe(read_text(fs, path), path), recipe))
    if (changes_numbers(recipe, d.key)) keys.push_back(fmt::format("{}: {} in the run, {} now", d.key, d.a, d.b));
  if (!keys.empty())
    throw UserError(fmt::format("{}: the checkpoints belong to another recipe; {}; resume with the run's recipe, "
                                "or choose another --out",
                                run, fmt::join(keys, "; ")),
                    Exit::bad_recipe);
}

namespace {

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

MetricsLog::MetricsLog(io::Fs& fs, const std::string& dir, int64_t step, bool evaluated)
    : events_(dir, step, unix_time()) {
  const std::string path = io::join_path(dir, "metrics.jsonl");
  std::string kept;
  if (io::info_at(fs, path)) {
    each_metrics_line(read_text(fs, path, int64_t{1} << 30),
                      [&](int64_t at, const nlohmann::json& j, std::string_view line) {
                        if (at < step || (at == step && (evaluated || !j.contains("eval_loss"))))
                          kept.append(line) += '\n';
                      });
  }
  replace_text(fs, path, kept);
  file_ = std::fopen(path.c_str(), "ae");
  if (!file_) throw UserError(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)), Exit::cannot_create);
}

MetricsLog::~MetricsLog() { std::fclose(file_); }

void MetricsLog::write(std::span<const Metric> metrics) {
  fmt::memory_buffer line;  // its own 500 bytes are enough: no allocation
  const auto to = std::back_inserter(line);
  for (const Metric& m : metrics) {
    fmt::format_to(to, "{}\"{}\":", line.size() == 0 ? "{" : ",", m.name);
    if (const auto* whole = std::get_if<int64_t>(&m.value))
      fmt::format_to(to, "{}", *whole);
    else if (const double number = std::get<double>(m.value); !std::isfinite(number))
      fmt::format_to(to, "null");
    else if (number == std::floor(number) && std::fabs(number) < 1e15)
      fmt::format_to(to, "{:.1f}", number);
    else
      fmt::format_to(to, "{}", number);
  }
  fmt::format_to(to, "}}\n");
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() || std::fflush(file_) != 0)
    throw UserError(fmt::format("metrics.jsonl: cannot be written: {}", std::strerror(errno)), Exit::io_error);
  write_events(metrics);
}

void MetricsLog::write_events(std::span<const Metric> metrics) {
  const auto* step = metrics.empty() ? nullptr : std::get_if<int64_t>(&metrics[0].value);
  LATHE_CHECK(step, "metrics without a step");
  const double now = unix_time();
  for (const Metric& m : metrics.subspan(1)) {
    const auto* whole = std::get_if<int64_t>(&m.value);
    events_.scalar(m.name, *step, whole ? static_cast<double>(*whole) : std::get<double>(m.value), now);
  }
  events_.flush();
}

void MetricsLog::sync() { fsync(fileno(file_)); }

}  // namespace lathe
