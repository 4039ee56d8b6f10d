#include "passes/fuse/fuse_partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/philox.h"
#include "ir/builder.h"
#include "ops/elementwise.h"

namespace lathe {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : rng_(seed, 0xF5, 0, 0) {}
  size_t below(size_t n) { return static_cast<size_t>(rng_.below(counter_++, n)); }

 private:
  CounterRng rng_;
  uint64_t counter_ = 0;
};

// Nodes with two inputs each, of which some are state that a later node writes.
Graph random_sums(int nodes, Draw& draw) {
  Builder b("g");
  const TensorType t{DType::f32, {3}};
  const Value w = b.input(t, InputKind::param, "w");
  Values pool{b.input(t, InputKind::batch, "x"), w};
  for (int i = 0; i < nodes; ++i) {
    const Value x = pool[draw.below(pool.size())], y = pool[draw.below(pool.size())];
    pool.push_back(x + y);
    b.output(pool.back(), OutputKind::result, "y" + std::to_string(i));
  }
  b.update(w, w * pool.back());
  return b.finish();
}

// By brute force: whether the groups without an edge into them can be taken away until none is left.
bool is_acyclic(const FuseGraph& f, const std::vector<int32_t>& group) {
  std::set<std::pair<int32_t, int32_t>> edges;
  std::set<int32_t> left(group.begin(), group.end());
  for (int32_t i = 0; i < static_cast<int32_t>(group.size()); ++i)
    for (const auto* list : {&f.readers[at(i)], &f.writers[at(i)]})
      for (int32_t s : *list)
        if (group[at(i)] != group[at(s)]) edges.insert({group[at(i)], group[at(s)]});
  for (;;) {
    std::set<int32_t> entered;
    for (const auto& [from, to] : edges) entered.insert(to);
    if (std::erase_if(left, [&](int32_t g) { return !entered.contains(g); }) == 0) return left.empty();
    std::erase_if(edges, [&](const auto& e) { return !left.contains(e.first); });
  }
}

TEST(FusePartition, MergesWhatLeavesNoCycle) {
  int merged = 0, refused = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Draw draw(seed);
    const Graph g = random_sums(24, draw);
    const FuseGraph f(g);
    FusePartition parts(f);
    std::vector<int32_t> group(g.nodes.size());
    for (size_t i = 0; i < group.size(); ++i) group[i] = static_cast<int32_t>(i);
    for (int tries = 0; tries < 80; ++tries) {
      std::set<int32_t> ids;
      while (ids.size() < 2 + draw.below(2)) ids.insert(group[draw.below(group.size())]);
      const std::vector<int32_t> list(ids.begin(), ids.end());
      std::vector<int32_t> now = group;
      for (int32_t& i : now)
        if (ids.contains(i)) i = list[0];
      const bool acyclic = is_acyclic(f, now);
      const bool done = list.size() == 2 ? parts.merge({list[0], list[1]}) : parts.merge({list[0], list[1], list[2]});
      ASSERT_EQ(done, acyclic) << "seed " << seed << ", try " << tries;
      (done ? merged : refused) += 1;
      if (done) group = now;
      for (int32_t i = 0; i < static_cast<int32_t>(group.size()); ++i) ASSERT_EQ(parts.id(i), group[at(i)]);
      if (std::set<int32_t>(group.begin(), group.end()).size() < 4) break;
    }
    EXPECT_NO_THROW(parts.sorted()) << "seed " << seed;
  }
  EXPECT_GT(merged, 300);
  EXPECT_GT(refused, 300);
}

// One group takes in all that it can: many groups move behind it, and the numbers between it and the next run out.
TEST(FusePartition, LargeGroups) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Draw draw(seed);
    Builder b("g");
    const TensorType t{DType::f32, {3}};
    Value x = b.input(t, InputKind::batch, "x"), last;
    // Each node of a chain reads its predecessor; beside the chain, values that nobody waits for.
    for (int i = 0; i < 600; ++i) {
      last = tanh(x);
      b.output(sin(last), OutputKind::result, "y" + std::to_string(i));
      if (draw.below(3)) x = last;
    }
    b.output(x, OutputKind::result, "x");
    const Graph g = b.finish();
    const FuseGraph f(g);
    FusePartition parts(f);
    int merged = 0;
    const int32_t size = static_cast<int32_t>(g.nodes.size()), end = parts.id(f.def[at(x.id())]);
    for (int32_t i = size; i-- > 0;)
      if (parts.id(i) != end && g.nodes[at(i)].is("tanh")) merged += parts.merge({end, parts.id(i)});
    EXPECT_GT(merged, 300);
    std::vector<int32_t> group;
    for (int32_t i = 0; i < size; ++i) group.push_back(parts.id(i));
    EXPECT_TRUE(is_acyclic(f, group)) << "seed " << seed;
    EXPECT_NO_THROW(parts.sorted());
  }
}

}  // namespace
}  // namespace lathe
