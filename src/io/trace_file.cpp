#include "io/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace lathe::io {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string span_line(size_t process, const TraceSpan& s, const TraceLabel& l, int64_t zero) {
  const double us = 1e-3 * static_cast<double>(s.end - s.begin);
  std::string line =
      fmt::format(R"({{"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},"cat":{})", process, s.lane + 1,
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

std::string meta_line(size_t process, size_t lane, const char* what, const std::string& argument) {
  return fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{{}}}}})", process, lane, what, argument);
}

// A number of a text, and what stands behind it.
int64_t take_number(const char*& at, const char* end) {
  int64_t v = 0;
  const auto [next, error] = std::from_chars(at, end, v);
  LATHE_CHECK(error == std::errc() && next < end, "a trace ends in the middle of a line");
  at = next + 1;
  return v;
}

}  // namespace

std::string trace_json(std::span<const TraceProcess> processes, const TraceFacts& facts) {
  struct Placed {
    size_t process;
    const TraceSpan* span;
  };
  std::vector<Placed> spans;
  int64_t left_out = 0;
  for (size_t p = 0; p < processes.size(); ++p) {
    for (const TraceSpan& s : processes[p].data.spans) spans.push_back({p, &s});
    left_out += processes[p].data.left_out;
  }
  // Of spans that begin together the longer one is the outer one.
  std::ranges::stable_sort(spans, [](const Placed& a, const Placed& b) {
    return a.span->begin != b.span->begin ? a.span->begin < b.span->begin : a.span->end > b.span->end;
  });
  const int64_t zero = spans.empty() ? 0 : spans.front().span->begin;
  std::string out = "{\"displayTimeUnit\":\"ms\",\"otherData\":{";
  for (const auto& [key, value] : facts) out += quoted(key) + ":" + quoted(value) + ",";
  out += fmt::format("\"spans left out\":\"{}\"}},\n\"traceEvents\":[", left_out);
  const char* between = "\n";
  for (size_t p = 0; p < processes.size(); ++p) {
    out += std::exchange(between, ",\n") + meta_line(p, 0, "process_name", "\"name\":" + quoted(processes[p].name));
    out += between + meta_line(p, 0, "process_sort_index", fmt::format("\"sort_index\":{}", p));
    const auto& lanes = processes[p].data.lanes;
    for (size_t i = 0; i < lanes.size(); ++i) {
      out += between + meta_line(p, i + 1, "thread_name", "\"name\":" + quoted(lanes[i].name));
      out += between + meta_line(p, i + 1, "thread_sort_index", fmt::format("\"sort_index\":{}", i + 1));
    }
  }
  for (const auto& [p, s] : spans)
    out += between + span_line(p, *s, processes[p].data.labels[static_cast<size_t>(s->label)], zero);
  return out + "\n]}\n";
}

std::vector<TraceData> split_ranks(const TraceData& all) {
  int ranks = 1;
  for (const TraceLane& l : all.lanes) ranks = std::max(ranks, l.rank + 1);
  std::vector<TraceData> out(static_cast<size_t>(ranks));
  std::vector<std::pair<size_t, int32_t>> places;  // by lane: its rank, and its number there
  for (const TraceLane& l : all.lanes) {
    const auto rank = static_cast<size_t>(std::max(0, l.rank));
    places.push_back({rank, static_cast<int32_t>(out[rank].lanes.size())});
    out[rank].lanes.push_back({l.name, -1});
  }
  for (TraceData& d : out) d.labels = all.labels;
  for (const TraceSpan& s : all.spans) {
    const auto [rank, lane] = places[static_cast<size_t>(s.lane)];
    out[rank].spans.push_back(s);
    out[rank].spans.back().lane = lane;
  }
  out[0].left_out = all.left_out;
  return out;
}

// A line of JSON with the names, then a line of numbers for each span.
std::string trace_text(const TraceData& d) {
  nlohmann::json names{{"lanes", nlohmann::json::array()}, {"labels", nlohmann::json::array()}};
  for (const TraceLane& l : d.lanes) names["lanes"].push_back({l.name, l.rank});
  for (const TraceLabel& l : d.labels) names["labels"].push_back({l.name, l.kind, l.flops, l.bytes, l.node, l.lane});
  names["left_out"] = d.left_out;
  std::string out = names.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  for (const TraceSpan& s : d.spans)
    fmt::format_to(std::back_inserter(out), "{} {} {} {} {}\n", s.lane, s.label, s.begin, s.end, s.part ? 1 : 0);
  return out;
}

TraceData parse_trace_text(std::string_view text) {
  const size_t names_end = text.find('\n');
  LATHE_CHECK(names_end != text.npos, "a trace without names");
  const auto names = nlohmann::json::parse(text.substr(0, names_end));
  TraceData d;
  for (const auto& l : names.at("lanes")) d.lanes.push_back({l.at(0), l.at(1)});
  for (const auto& l : names.at("labels")) d.labels.push_back({l.at(0), l.at(1), l.at(2), l.at(3), l.at(4), l.at(5)});
  d.left_out = names.at("left_out");
  for (const char *at = text.data() + names_end + 1, *end = text.data() + text.size(); at < end;) {
    TraceSpan& s = d.spans.emplace_back();
    s.lane = static_cast<int32_t>(take_number(at, end));
    s.label = static_cast<int32_t>(take_number(at, end));
    s.begin = take_number(at, end);
    s.end = take_number(at, end);
    s.part = take_number(at, end) != 0;
    LATHE_CHECK(s.lane >= 0 && static_cast<size_t>(s.lane) < d.lanes.size() && s.label >= 0 &&
                    static_cast<size_t>(s.label) < d.labels.size(),
                "a span of lane {} and label {}", s.lane, s.label);
  }
  return d;
}

}  // namespace lathe::io
