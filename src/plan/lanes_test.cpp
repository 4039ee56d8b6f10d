#include "plan/lanes.h"

#include <gtest/gtest.h>

#include <random>

#include "ir/builder.h"
#include "ops/elementwise.h"
#include "plan/plan.h"
#include "plan/shadow.h"
#include "plan/test_graphs.h"

namespace lathe {
namespace {

using testing::plain_table;
using testing::random_graph;
using testing::Shadow;
using testing::with_lanes;

using Bits = std::vector<bool>;

// Which launches are done before which start. Point 0 is the begin of the step, i + 1 launch i, the last one the end.
class Order {
 public:
  explicit Order(const Program& p) : before_(p.launches.size() + 2, Bits(p.launches.size() + 2)) {
    size_t last[std::size(kLanes)] = {};  // by lane: the point of its latest launch; 0: none
    for (size_t i = 0; i < p.launches.size(); ++i) {
      const Launch& l = p.launches[i];
      size_t& latest = last[static_cast<size_t>(l.lane)];
      if (latest > 0 || l.lane == Lane::compute) follow(i + 1, latest);
      for (int32_t w : l.waits) follow(i + 1, static_cast<size_t>(w + 1));
      latest = i + 1;
    }
    follow(before_.size() - 1, last[static_cast<size_t>(Lane::compute)]);
    for (int32_t w : p.end_waits) follow(before_.size() - 1, static_cast<size_t>(w + 1));
  }
  bool before(size_t a, size_t b) const { return before_[b][a]; }

 private:
  void follow(size_t b, size_t a) {
    before_[b][a] = true;
    for (size_t i = 0; i < before_.size(); ++i)
      if (before_[a][i]) before_[b][i] = true;
  }
  std::vector<Bits> before_;  // by point
};

// Pairs of points that must be ordered: launches that touch a cell of the arena, one of them writing; the begin and
// each launch; each launch and the end.
std::vector<std::pair<size_t, size_t>> pairs_to_order(const ProgramSet& set, const Program& p, int64_t alignment) {
  std::vector<int64_t> first_cell;  // by segment
  int64_t cells = 0;
  for (int64_t bytes : set.segments) {
    first_cell.push_back(cells);
    cells += (bytes + alignment - 1) / alignment;
  }
  struct Touched {
    std::set<int64_t> read, written;
  };
  std::vector<Touched> touched(p.launches.size());
  const auto add = [&](std::set<int64_t>& to, const Buffer& b) {
    for (int64_t at = b.offset; at < b.offset + b.bytes; at += alignment)
      to.insert(first_cell[static_cast<size_t>(b.segment)] + at / alignment);
  };
  for (size_t i = 0; i < p.launches.size(); ++i) {
    const KernelArgs& a = p.launches[i].args;
    for (const Buffer& b : a.in) add(touched[i].read, b);
    for (const Buffer& b : a.out) add(touched[i].written, b);
    add(touched[i].written, a.workspace);
  }
  const auto meet = [](const std::set<int64_t>& a, const std::set<int64_t>& b) {
    return std::ranges::any_of(a, [&](int64_t cell) { return b.contains(cell); });
  };
  std::vector<std::pair<size_t, size_t>> out;
  for (size_t j = 0; j < touched.size(); ++j) {
    out.push_back({0, j + 1});
    out.push_back({j + 1, touched.size() + 1});
    for (size_t i = 0; i < j; ++i)
      if (p.launches[i].lane != p.launches[j].lane &&
          (meet(touched[i].written, touched[j].written) || meet(touched[i].written, touched[j].read) ||
           meet(touched[i].read, touched[j].written)))
        out.push_back({i + 1, j + 1});
  }
  return out;
}

bool all_ordered(const Program& p, const std::vector<std::pair<size_t, size_t>>& pairs) {
  const Order order(p);
  return std::ranges::all_of(pairs, [&](const auto& pair) { return order.before(pair.first, pair.second); });
}

// Lanes make progress in any way that the waits allow.
std::vector<size_t> random_interleaving(const Program& p, std::mt19937& rng) {
  std::vector<size_t> on_lane[std::size(kLanes)], order;
  for (size_t i = p.launches.size(); i-- > 0;) on_lane[static_cast<size_t>(p.launches[i].lane)].push_back(i);
  std::vector<bool> done(p.launches.size(), false);
  while (order.size() < p.launches.size()) {
    auto& lane = on_lane[rng() % std::size(kLanes)];
    if (lane.empty()) continue;
    const Launch& l = p.launches[lane.back()];
    if (std::ranges::any_of(l.waits, [&](int32_t w) { return w >= 0 && !done[static_cast<size_t>(w)]; })) continue;
    done[lane.back()] = true;
    order.push_back(lane.back());
    lane.pop_back();
  }
  return order;
}

// Every conflict is ordered, no wait can be left out, those that are waited for signal, and no more.
void check_waits(const ProgramSet& set, Program& p, int64_t alignment) {
  const auto pairs = pairs_to_order(set, p, alignment);
  ASSERT_TRUE(all_ordered(p, pairs));
  std::set<int32_t> waited(p.end_waits.begin(), p.end_waits.end());
  const auto each_needed = [&](std::vector<int32_t>& waits, Lane lane, int32_t at) {
    for (size_t k = 0; k < waits.size(); ++k) {
      const int32_t w = waits[k];
      ASSERT_LT(w, at);
      ASSERT_NE(w == kStepBegin ? Lane::compute : p.launches[static_cast<size_t>(w)].lane, lane);
      waits.erase(waits.begin() + static_cast<int64_t>(k));
      EXPECT_FALSE(all_ordered(p, pairs)) << "launch " << at << " waits for " << w << " without need";
      waits.insert(waits.begin() + static_cast<int64_t>(k), w);
    }
  };
  for (size_t i = 0; i < p.launches.size(); ++i) {
    waited.insert(p.launches[i].waits.begin(), p.launches[i].waits.end());
    each_needed(p.launches[i].waits, p.launches[i].lane, static_cast<int32_t>(i));
  }
  each_needed(p.end_waits, Lane::compute, static_cast<int32_t>(p.launches.size()));
  for (size_t i = 0; i < p.launches.size(); ++i)
    EXPECT_EQ(p.launches[i].signals, waited.contains(static_cast<int32_t>(i)));
  EXPECT_EQ(p.begin_signals, waited.contains(kStepBegin));
}

TEST(Lanes, EveryConflictIsOrderedWithNoWaitTooMany) {
  size_t waits = 0, reused = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    const Target target;
    ProgramSet set = plan({random_graph(seed, 5 + static_cast<int>(seed))}, target,
                          seed % 2 ? plain_table() : ref_backend().kernels());
    Program& p = set.programs[0];
    for (const unsigned share : {1u, 3u, 8u}) {  // one of so many launches is on another lane
      for (Launch& l : p.launches) l.lane = rng() % share == 0 ? kLanes[rng() % std::size(kLanes)] : Lane::compute;
      place_waits(p);
      check_waits(set, p, target.alignment);
      if (HasFatalFailure()) return;
      for (int i = 0; i < 5; ++i) Shadow(set, p, target.alignment).run(random_interleaving(p, rng));
      for (const Launch& l : p.launches) {
        waits += l.waits.size();
        for (int32_t w : l.waits)  // not for a value: for the place of one
          reused += w >= 0 && std::ranges::none_of(p.launches[static_cast<size_t>(w)].node.outputs, [&](ValueId v) {
                      return std::ranges::find(l.node.inputs, v) != l.node.inputs.end();
                    });
      }
    }
  }
  EXPECT_GT(waits, 1000u);
  EXPECT_GT(reused, 100u);
}

TEST(Lanes, OneLaneHasNoWaits) {
  const ProgramSet set = plan({random_graph(3, 80)}, {}, plain_table());
  const Program& p = set.programs[0];
  EXPECT_FALSE(p.has_lanes());
  EXPECT_FALSE(p.begin_signals);
  EXPECT_TRUE(p.end_waits.empty());
  for (const Launch& l : p.launches) EXPECT_TRUE(l.lane == Lane::compute && l.waits.empty() && !l.signals);
}

// Another lane reads a weight that is updated in place, and its result is an output.
TEST(Lanes, UpdatesInPlaceWaitForReadersOnOtherLanes) {
  Builder b("g");
  const Value w = b.input({DType::f32, {8}}, InputKind::param, "w");
  b.output(tanh(w), OutputKind::result, "y");
  b.update(w, w * 0.5);
  const ProgramSet set = plan({b.finish()}, {}, with_lanes(plain_table(), {{"tanh", Lane::communication}}));
  const Program& p = set.programs[0];
  size_t reader = 0, writer = 0;
  for (size_t i = 0; i < p.launches.size(); ++i) {
    if (p.launches[i].node.is("tanh")) reader = i;
    if (p.launches[i].args.out[0].offset == set.state[0].buffer.offset) writer = i;
  }
  ASSERT_LT(reader, writer);
  EXPECT_EQ(p.launches[reader].lane, Lane::communication);
  EXPECT_EQ(p.launches[reader].waits, (std::vector<int32_t>{kStepBegin}));
  EXPECT_EQ(p.launches[writer].waits, (std::vector<int32_t>{static_cast<int32_t>(reader)}));
  EXPECT_TRUE(p.launches[reader].signals && p.begin_signals);
  EXPECT_TRUE(p.end_waits.empty());  // the writer has waited
}

// The copy of a new value into its state comes after the lane that computes it.
TEST(Lanes, FinalCopiesWaitForOtherLanes) {
  Builder b("g");
  const Value u = b.input({DType::f32, {8}}, InputKind::param, "u"),
              v = b.input({DType::f32, {8}}, InputKind::param, "v");
  const Value now = tanh(u);
  b.update(u, now);
  b.update(v, now);
  const ProgramSet set = plan({b.finish()}, {}, with_lanes(plain_table(), {{"tanh", Lane::communication}}));
  const Program& p = set.programs[0];
  ASSERT_EQ(p.launches.size(), 1u);
  EXPECT_EQ(p.final_copies.size(), 1u);
  EXPECT_EQ(p.end_waits, (std::vector<int32_t>{0}));
  EXPECT_TRUE(p.launches[0].signals);
}

}  // namespace
}  // namespace lathe
