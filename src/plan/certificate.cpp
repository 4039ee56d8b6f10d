#include "plan/certificate.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/format_bytes.h"
#include "plan/certificate_json.h"

namespace lathe {
namespace {

using Row = std::vector<std::string>;

// Columns as wide as their content: the first is text, the others are numbers.
std::string table(const std::vector<Row>& rows) {
  std::vector<size_t> width;
  for (const Row& r : rows)
    for (size_t i = 0; i < r.size(); ++i) {
      if (width.size() <= i) width.push_back(0);
      width[i] = std::max(width[i], r[i].size());
    }
  std::string out;
  for (const Row& r : rows) {
    std::string line;
    for (size_t i = 0; i < r.size(); ++i)
      line += i == 0 ? fmt::format("{:<{}}", r[i], width[i]) : fmt::format("  {:>{}}", r[i], width[i]);
    out += line + "\n";
  }
  return out;
}

double percent_over(const MemoryReport& m) {
  return m.lower_bound == 0
             ? 0
             : 100.0 * static_cast<double>(m.scratch - m.lower_bound) / static_cast<double>(m.lower_bound);
}

double bytes_moved(const Cost& c) { return c.bytes_read + c.bytes_written; }

std::string lane_line(const Launch& l) {
  std::vector<std::string> waits;
  for (int32_t w : l.waits) waits.push_back(w == kStepBegin ? "the begin of the step" : std::to_string(w));
  return fmt::format("{:>5}  on the {} lane{}{}\n", "", to_string(l.lane), waits.empty() ? "" : ", waits for ",
                     fmt::join(waits, ", "));
}

std::string launches_table(const Program& p) {
  size_t op = 2, kernel = 6;
  for (const Launch& l : p.launches) {
    op = std::max(op, l.node.op->name().size());
    kernel = std::max(kernel, l.candidate.name.size());
  }
  std::string out =
      fmt::format("\n{}: {} launches, {} copies\n{:>5}  {:<{}}  {:<{}}  {:>10}  {:>10}  origin\n", p.name,
                  p.launches.size(), p.final_copies.size(), "#", "op", op, "kernel", kernel, "GFLOP", "MB");
  double flops = 0, bytes = 0;
  for (size_t i = 0; i < p.launches.size(); ++i) {
    const Launch& l = p.launches[i];
    flops += l.cost.flops;
    bytes += bytes_moved(l.cost);
    out += fmt::format("{:>5}  {:<{}}  {:<{}}  {:>10.4f}  {:>10.3f}  {}\n", i, l.node.op->name(), op, l.candidate.name,
                       kernel, l.cost.flops * 1e-9, bytes_moved(l.cost) * 1e-6, l.node.origin);
    if (l.lane != Lane::compute || !l.waits.empty()) out += lane_line(l);
    for (const Declined& d : l.declined) out += fmt::format("{:>5}  declined by {}: {}\n", "", d.kernel, d.reason);
  }
  const auto other = std::ranges::find_if(p.launches, [](const Launch& l) { return !l.candidate.otherwise.empty(); });
  if (other != p.launches.end())
    out +=
        fmt::format("{:>5}  {} takes over, in the same workspace, where a library has nothing for a node on the card\n",
                    "", other->candidate.otherwise);
  out += fmt::format("{:>5}  {:<{}}  {:<{}}  {:>10.4f}  {:>10.3f}\n", "", "sum", op, "", kernel, flops * 1e-9,
                     bytes * 1e-6);
  for (const Expansion& e : p.expanded) {
    out += fmt::format("expanded: {}{}{}\n", e.op, e.origin.empty() ? "" : " of ", e.origin);
    for (const Declined& d : e.declined) out += fmt::format("{:>5}  declined by {}: {}\n", "", d.kernel, d.reason);
  }
  return out;
}

nlohmann::ordered_json declined_json(const std::vector<Declined>& list) {
  auto out = nlohmann::ordered_json::array();
  for (const Declined& d : list) out.push_back({{"kernel", d.kernel}, {"reason", d.reason}});
  return out;
}

}  // namespace

std::string memory_table(const ProgramSet& set) {
  std::vector<Row> rows;
  Row head{"memory in bytes"};
  for (const Program& p : set.programs) head.push_back(p.name);
  rows.push_back(head);
  const auto add = [&](std::string name, auto&& value) {
    Row r{std::move(name)};
    for (const Program& p : set.programs) r.push_back(value(p.memory));
    rows.push_back(std::move(r));
  };
  for (MemoryClass c : kMemoryClasses)
    if (c != MemoryClass::communication || set.communication_bytes > 0)
      add(std::string(to_string(c)), [&](const MemoryReport& m) { return std::to_string(m.of(c)); });
  add("total", [](const MemoryReport& m) { return std::to_string(m.total); });
  add("scratch", [](const MemoryReport& m) { return std::to_string(m.scratch); });
  add("lower bound", [](const MemoryReport& m) { return std::to_string(m.lower_bound); });
  add("over it", [](const MemoryReport& m) { return fmt::format("{:.2f} %", percent_over(m)); });
  if (std::ranges::any_of(set.programs, [](const Program& p) { return recomputed(p).launches > 0; })) {
    Row launches{"run again"}, flops{"more FLOP"};
    for (const Program& p : set.programs) {
      launches.push_back(std::to_string(recomputed(p).launches));
      flops.push_back(fmt::format("{:.2f} %", recomputed(p).flops_percent));
    }
    rows.push_back(std::move(launches));
    rows.push_back(std::move(flops));
  }
  std::string out = table(rows) + fmt::format("arena: {} bytes ({}) in {} segment{}\n", set.arena_bytes,
                                              format_bytes(set.arena_bytes), set.segments.size(),
                                              set.segments.size() == 1 ? "" : "s");
  if (set.communication_bytes > 0)
    out += fmt::format("communication: {} bytes ({}) beside it\n", set.communication_bytes,
                       format_bytes(set.communication_bytes));
  return out;
}

std::string certificate(const ProgramSet& set) {
  std::string out = memory_table(set);
  for (const Program& p : set.programs) out += launches_table(p);
  return out;
}

nlohmann::ordered_json certificate_json(const ProgramSet& set) {
  nlohmann::ordered_json out;
  out["arena_bytes"] = set.arena_bytes;
  out["segments"] = set.segments;
  out["communication_bytes"] = set.communication_bytes;
  out["state"] = nlohmann::ordered_json::array();
  for (const Port& p : set.state)
    out["state"].push_back(
        {{"name", p.name}, {"type", to_string(p.type)}, {"kind", to_string(p.kind)}, {"bytes", p.type.bytes()}});
  out["programs"] = nlohmann::ordered_json::array();
  for (const Program& p : set.programs) {
    nlohmann::ordered_json memory;
    for (MemoryClass c : kMemoryClasses) memory[std::string(to_string(c))] = p.memory.of(c);
    memory["total"] = p.memory.total;
    memory["scratch"] = p.memory.scratch;
    memory["lower_bound"] = p.memory.lower_bound;
    memory["percent_over"] = percent_over(p.memory);
    auto launches = nlohmann::ordered_json::array();
    for (const Launch& l : p.launches)
      launches.push_back({{"op", l.node.op->name()},
                          {"origin", l.node.origin.str()},
                          {"kernel", l.candidate.name},
                          {"flops", l.cost.flops},
                          {"bytes", bytes_moved(l.cost)},
                          {"workspace", l.args.workspace.bytes},
                          {"again", l.again},
                          {"lane", to_string(l.lane)},
                          {"waits", l.waits},
                          {"declined", declined_json(l.declined)}});
    const Recomputed again = recomputed(p);
    auto expanded = nlohmann::ordered_json::array();
    for (const Expansion& e : p.expanded)
      expanded.push_back({{"op", e.op}, {"origin", e.origin}, {"declined", declined_json(e.declined)}});
    out["programs"].push_back(
        {{"name", p.name},
         {"memory", std::move(memory)},
         {"recomputed", {{"launches", again.launches}, {"flops", again.flops}, {"flops_percent", again.flops_percent}}},
         {"final_copies", p.final_copies.size()},
         {"end_waits", p.end_waits},
         {"launches", std::move(launches)},
         {"expanded", std::move(expanded)}});
  }
  return out;
}

std::string certificate_text_json(const ProgramSet& set) { return certificate_json(set).dump(); }

}  // namespace lathe
