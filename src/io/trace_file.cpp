#include "io/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lathe::io {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string span_line(const TraceSpan& s, const TraceLabel& l, int64_t zero) {
  const double us = 1e-3 * static_cast<double>(s.end - s.begin);
  std::string line =
      fmt::format(R"({{"ph":"X","pid":0,"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},"cat":{})", s.lane + 1,
                  1e-3 * static_cast<double>(s.begin - zero), us, quoted(l.name), quoted(l.kind));
  std::string args;
  const auto add = [&](const std::string& text) { args += (args.empty() ? "" : ",") + text; };
  if (!l.node.empty()) add("\"node\":" + quoted(l.node));
  if (!l.lane.empty()) add("\"lane\":" + quoted(l.lane));
  if (l.flops > 0 && us > 0 && !s.part)
    add(fmt::format(R"("GFLOP/s":{:.2f},"MFLOP":{:.3f})", 1e-3 * l.flops / us, 1e-6 * l.flops));
  if (l.bytes > 0 && us > 0 && !s.part) add(fmt::format(R"("GB/s":{:.2f})", 1e-3 * l.bytes / us));
  if (!args.empty()) line += ",\"args\":{" + args + "}";
  return line + "}";
}

}  // namespace

std::string trace_json(const Trace& trace, const std::string& process, const TraceFacts& facts) {
  std::vector<TraceSpan> spans = trace.spans();
  const std::vector<std::string> lanes = trace.lanes();
  const std::vector<TraceLabel> labels = trace.labels();
  // Of spans that begin together the longer one is the outer one.
  std::ranges::stable_sort(spans, [](const TraceSpan& a, const TraceSpan& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  const int64_t zero = spans.empty() ? 0 : spans.front().begin;
  std::string out = "{\"displayTimeUnit\":\"ms\",\"otherData\":{";
  for (const auto& [key, value] : facts) out += quoted(key) + ":" + quoted(value) + ",";
  out += fmt::format("\"spans left out\":\"{}\"}},\n\"traceEvents\":[\n", trace.left_out());
  out += fmt::format(R"({{"ph":"M","pid":0,"tid":0,"name":"process_name","args":{{"name":{}}}}})", quoted(process));
  for (size_t i = 0; i < lanes.size(); ++i) {
    out += fmt::format(",\n{{\"ph\":\"M\",\"pid\":0,\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}}",
                       i + 1, quoted(lanes[i]));
    out += fmt::format(
        ",\n{{\"ph\":\"M\",\"pid\":0,\"tid\":{0},\"name\":\"thread_sort_index\",\"args\":{{\"sort_index\":{0}}}}}",
        i + 1);
  }
  for (const TraceSpan& s : spans) out += ",\n" + span_line(s, labels[static_cast<size_t>(s.label)], zero);
  return out + "\n]}\n";
}

}  // namespace lathe::io
