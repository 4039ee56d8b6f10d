// For tests: a picture of the arena that shows whether every value stays until its last reader, a table of kernels
// without workspace, and tables whose ops run on other lanes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backend/ref/ref_backend.h"
#include "ir/print.h"
#include "plan/program.h"

namespace lathe::testing {

// A target that knows no fused and no composite kernels, and kernels without workspace: sizes are those of the values.
inline KernelTable plain_table(const std::set<std::string>& without = {}) {
  std::vector<KernelTable::Row> rows;
  for (KernelTable::Row r : ref_kernels()) {
    if (without.contains(std::string(r.op))) continue;
    r.candidate.name = "plain";
    r.candidate.workspace = nullptr;
    rows.push_back(r);
  }
  return KernelTable(rows);
}

inline KernelTable with_lanes(const KernelTable& table, const std::map<std::string, Lane>& lanes) {
  std::vector<KernelTable::Row> rows;
  for (const std::string& op : table.ops())
    for (KernelTable::Row r : table.candidates(op)) {
      if (const auto lane = lanes.find(op); lane != lanes.end()) r.candidate.lane = lane->second;
      rows.push_back(r);
    }
  return KernelTable(rows);
}

// Runs a Program on a picture of the arena, in which every cell holds the number of the value that was written there
// last, and demands that every read finds its value.
class Shadow {
 public:
  Shadow(const ProgramSet& set, const Program& p, int64_t alignment) : p_(p), alignment_(alignment) {
    for (int64_t bytes : set.segments)
      cells_.emplace_back(static_cast<size_t>((bytes + alignment - 1) / alignment), kNothing);
    root_.resize(p.graph.types.size());
    for (size_t v = 0; v < root_.size(); ++v) root_[v] = static_cast<ValueId>(v);
    for (const Node& n : p.graph.nodes)
      if (n.op->has(kView)) root_[static_cast<size_t>(n.outputs[0])] = root_[static_cast<size_t>(n.inputs[0])];
  }

  void run() {
    std::vector<size_t> order;
    for (size_t i = 0; i < p_.launches.size(); ++i) order.push_back(i);
    run(order);
  }

  void run(const std::vector<size_t>& order) {
    for (size_t i = 0; i < p_.inputs.size(); ++i) {
      expect(p_.inputs[i].buffer, kNothing, "input");
      write(p_.inputs[i].buffer, p_.graph.inputs[i].value);
    }
    for (size_t i : order) launch(p_.launches[i]);
    for (const FinalCopy& c : p_.final_copies) {
      ASSERT_EQ(c.dst.bytes, c.src.bytes);
      const std::vector<ValueId> from = read(c.src);
      auto to = cells(c.dst);
      std::copy(from.begin(), from.end(), to.begin());
    }
    for (size_t i = 0; i < p_.outputs.size(); ++i)
      expect(p_.outputs[i].buffer, root(p_.graph.outputs[i].value), "output " + p_.outputs[i].name);
  }

 private:
  static constexpr ValueId kNothing = -1, kWorkspace = -2;

  ValueId root(ValueId v) const { return root_[static_cast<size_t>(v)]; }

  std::span<ValueId> cells(const Buffer& b) {
    EXPECT_EQ(b.offset % alignment_, 0);
    auto& segment = cells_.at(static_cast<size_t>(b.segment));
    const size_t from = static_cast<size_t>(b.offset / alignment_);
    const size_t count = static_cast<size_t>((b.bytes + alignment_ - 1) / alignment_);
    EXPECT_LE(from + count, segment.size());
    return std::span(segment).subspan(from, count);
  }
  std::vector<ValueId> read(const Buffer& b) {
    const auto c = cells(b);
    return {c.begin(), c.end()};
  }
  void write(const Buffer& b, ValueId v) { std::ranges::fill(cells(b), v); }
  void expect(const Buffer& b, ValueId v, const std::string& what) {
    for (ValueId cell : cells(b)) ASSERT_EQ(cell, v) << what << " of " << p_.name;
  }
  static bool overlap(const Buffer& a, const Buffer& b) {
    return a.bytes > 0 && b.bytes > 0 && a.segment == b.segment && a.offset < b.offset + b.bytes &&
           b.offset < a.offset + a.bytes;
  }

  void launch(const Launch& l) {
    const std::string what = print_node(p_.graph, l.node);
    for (size_t i = 0; i < l.node.inputs.size(); ++i) {
      ASSERT_EQ(l.args.in[i].bytes, l.in[i].bytes());
      expect(l.args.in[i], root(l.node.inputs[i]), what);
      ASSERT_FALSE(overlap(l.args.in[i], l.args.workspace)) << what;
    }
    for (size_t k = 0; k < l.node.outputs.size(); ++k) {
      const Buffer& out = l.args.out[k];
      ASSERT_EQ(out.bytes, l.out[k].bytes());
      ASSERT_FALSE(overlap(out, l.args.workspace)) << what;
      for (size_t j = 0; j < k; ++j) ASSERT_FALSE(overlap(out, l.args.out[j])) << what;
      for (const Buffer& in : l.args.in) {
        if (!overlap(out, in)) continue;
        const bool own = l.node.op->has(kInPlace) && &in == &l.args.in[k];
        ASSERT_TRUE(l.node.op->has(kElementwise) || l.node.is("fused") || own) << what;
        ASSERT_EQ(out.offset, in.offset) << what;
        ASSERT_EQ(out.bytes, in.bytes) << what;
      }
    }
    write(l.args.workspace, kWorkspace);
    for (size_t k = 0; k < l.node.outputs.size(); ++k) write(l.args.out[k], l.node.outputs[k]);
  }

  const Program& p_;
  int64_t alignment_;
  std::vector<std::vector<ValueId>> cells_;
  std::vector<ValueId> root_;
};

inline void check_set(const ProgramSet& set, const Target& target) {
  int64_t sum = 0;
  for (int64_t bytes : set.segments) {
    EXPECT_LE(bytes, target.largest_allocation);
    sum += bytes;
  }
  EXPECT_EQ(set.arena_bytes, sum);
  for (const Program& p : set.programs) {
    Shadow(set, p, target.alignment).run();
    const MemoryReport& m = p.memory;
    int64_t classes = 0, naive = 0;
    for (MemoryClass c : kMemoryClasses) {
      EXPECT_GE(m.of(c), 0);
      classes += m.of(c);
    }
    EXPECT_EQ(classes, m.total);
    for (const Launch& l : p.launches) {
      naive += l.args.workspace.bytes + target.alignment;
      for (const Buffer& b : l.args.out) naive += b.bytes + target.alignment;
    }
    for (const FinalCopy& c : p.final_copies) naive += c.dst.bytes + target.alignment;
    EXPECT_GE(m.scratch, m.lower_bound);
    EXPECT_LE(m.total - m.of(MemoryClass::communication), set.arena_bytes);
    EXPECT_LE(m.of(MemoryClass::communication), set.communication_bytes);
    if (set.segments.size() == 1) {
      EXPECT_LE(m.scratch, naive);
    }
    for (size_t i = 0; i < p.outputs.size(); ++i) {
      if (p.outputs[i].output_kind != OutputKind::state) continue;
      const auto in = std::ranges::find(set.state, p.outputs[i].name, &Port::name);
      ASSERT_NE(in, set.state.end());
      EXPECT_EQ(in->buffer.segment, p.outputs[i].buffer.segment);
      EXPECT_EQ(in->buffer.offset, p.outputs[i].buffer.offset);
    }
  }
}

}  // namespace lathe::testing
