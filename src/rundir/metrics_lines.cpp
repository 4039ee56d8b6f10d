#include "rundir/metrics_lines.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace lathe {

std::vector<std::string> MetricsProblems::texts(const std::string& path) const {
  std::vector<std::string> out;
  if (bad.size() == 1)
    out.push_back(fmt::format("{}:{}: is no object with a step and was left out", path, bad[0]));
  else if (!bad.empty())
    out.push_back(fmt::format("{}:{}: and {} more lines are no objects with a step and were left out", path, bad[0],
                              bad.size() - 1));
  if (cut) out.push_back(fmt::format("{}: the last line is cut and was left out; the process was killed", path));
  return out;
}

MetricsProblems each_metrics_line(std::string_view text, const OnMetricsLine& f) {
  MetricsProblems out;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    const auto j = nlohmann::json::parse(line, nullptr, false);
    const auto step = j.is_object() ? j.find("step") : j.end();
    if (step != j.end() && step->is_number_integer())
      f(step->get<int64_t>(), j, line);
    else if (end == line.npos)
      out.cut = true;
    else
      out.bad.push_back(number);
  }
  return out;
}

}  // namespace lathe
