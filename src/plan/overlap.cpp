#include "plan/overlap.h"

#include <algorithm>
#include <array>
#include <set>

namespace lathe {
namespace {

size_t at(int32_t i) { return static_cast<size_t>(i); }

class OverlapOrder {
 public:
  OverlapOrder(const Graph& g, std::span<const std::vector<int32_t>> before, std::span<const int32_t> order,
               std::span<const Lane> lanes, int64_t in_flight)
      : g_(g),
        lanes_(lanes),
        cap_(in_flight),
        rank_(g.nodes.size()),
        pending_(g.nodes.size()),
        after_(g.nodes.size()),
        waits_(g.nodes.size()),
        late_(g.nodes.size(), false),
        read_(g.nodes.size(), false),
        started_(g.nodes.size(), -1) {
    known_.fill(-1);
    for (size_t p = 0; p < order.size(); ++p) rank_[at(order[p])] = static_cast<int32_t>(p);
    for (const int32_t i : order) {
      pending_[at(i)] = static_cast<int32_t>(before[at(i)].size());
      for (const int32_t j : before[at(i)]) {
        after_[at(j)].push_back(i);
        if (is_aside(j))
          add_wait(i, j);
        else if (is_view(j))
          for (const int32_t a : waits_[at(j)]) add_wait(i, a);
      }
      if (!is_aside(i) && !is_view(i))
        for (const int32_t a : waits_[at(i)]) read_[at(a)] = true;
    }
    find_late(order);
  }

  std::vector<int32_t> run() {
    for (int32_t i = 0; i < static_cast<int32_t>(g_.nodes.size()); ++i)
      if (pending_[at(i)] == 0) make_ready(i);
    while (out_.size() < g_.nodes.size()) place(next());
    return std::move(out_);
  }

 private:
  using Ready = std::set<std::pair<int32_t, int32_t>>;  // rank or start, node

  bool is_aside(int32_t i) const { return lanes_[at(i)] != Lane::compute; }
  bool is_view(int32_t i) const { return g_.nodes[at(i)].op->has(kView); }
  size_t lane(int32_t i) const { return static_cast<size_t>(lanes_[at(i)]); }

  void add_wait(int32_t i, int32_t aside) {
    auto& list = waits_[at(i)];
    if (std::ranges::find(list, aside) == list.end()) list.push_back(aside);
  }

  // Nothing on another lane depends on what it computes.
  void find_late(std::span<const int32_t> order) {
    const auto read = readers(g_);
    std::vector<bool> leads(g_.nodes.size(), false);
    for (size_t p = order.size(); p-- > 0;) {
      const int32_t i = order[p];
      for (const ValueId v : g_.nodes[at(i)].outputs)
        for (const int32_t r : read[static_cast<size_t>(v)]) leads[at(i)] = leads[at(i)] || is_aside(r) || leads[at(r)];
      late_[at(i)] = is_aside(i) && !leads[at(i)];
    }
  }

  // What is in memory as long as it is in flight: of a reduce_scatter the whole and the part that is left of it.
  int64_t bytes_of(int32_t aside) const {
    if (!read_[at(aside)]) return 0;
    const auto sum = [&](const auto& values) {
      int64_t bytes = 0;
      for (const ValueId v : values) bytes += g_.type(v).bytes();
      return bytes;
    };
    const Node& n = g_.nodes[at(aside)];
    return n.op->has(kInPlace) ? sum(n.outputs) : sum(n.inputs) + sum(n.outputs);
  }

  // The last of what it reads that may be under way and need not be waited for yet; -1: none.
  int32_t waits_for(int32_t i) const {
    int32_t last = -1;
    for (const int32_t a : waits_[at(i)])
      if (late_[at(a)] && started_[at(a)] > known_[lane(a)]) last = std::max(last, started_[at(a)]);
    return last;
  }

  void make_ready(int32_t i) {
    if (is_view(i))
      views_.push_back(i);
    else if (is_aside(i))
      aside_.insert({rank_[at(i)], i});
    else if (const int32_t start = waits_for(i); start >= 0)
      blocked_.insert({start, i});
    else
      (waits_[at(i)].empty() ? open_ : retiring_).insert({rank_[at(i)], i});
  }

  static int32_t take(Ready& from) {
    const int32_t i = from.begin()->second;
    from.erase(from.begin());
    return i;
  }

  int32_t next() {
    if (!views_.empty()) {
      const int32_t i = views_.back();
      views_.pop_back();
      return i;
    }
    if (!aside_.empty()) {
      const auto [rank, a] = *aside_.begin();
      if (in_flight_ == 0 || in_flight_ + bytes_of(a) <= cap_) return take(aside_);
      if (!retiring_.empty()) return take(retiring_);
      if (!blocked_.empty()) return take(blocked_);
      // Nothing can be freed. What is in place takes no memory more.
      if (g_.nodes[at(a)].op->has(kInPlace) || open_.empty() || rank < open_.begin()->first) return take(aside_);
    }
    if (open_.empty() && retiring_.empty()) return take(blocked_);
    if (open_.empty() || (!retiring_.empty() && retiring_.begin()->first < open_.begin()->first))
      return take(retiring_);
    return take(open_);
  }

  void place(int32_t i) {
    if (is_aside(i)) {
      started_[at(i)] = static_cast<int32_t>(out_.size());
      in_flight_ += bytes_of(i);
      flying_.push_back(i);
    }
    out_.push_back(i);
    if (!is_aside(i) && !is_view(i) && !waits_[at(i)].empty()) finish(waits_[at(i)]);
    for (const int32_t j : after_[at(i)])
      if (--pending_[at(j)] == 0) make_ready(j);
  }

  // The compute lane has waited for these, and so for all before them on their lanes.
  void finish(const std::vector<int32_t>& aside) {
    bool waited = false;
    for (const int32_t a : aside) {
      waited = waited || started_[at(a)] > known_[lane(a)];
      known_[lane(a)] = std::max(known_[lane(a)], started_[at(a)]);
    }
    if (!waited) return;
    std::erase_if(flying_, [&](int32_t a) {
      const bool done = started_[at(a)] <= known_[lane(a)];
      if (done) in_flight_ -= bytes_of(a);
      return done;
    });
    for (auto b = blocked_.begin(); b != blocked_.end();) {
      const int32_t i = b->second;
      if (waits_for(i) >= 0) {
        ++b;
        continue;
      }
      b = blocked_.erase(b);
      retiring_.insert({rank_[at(i)], i});
    }
  }

  const Graph& g_;
  std::span<const Lane> lanes_;
  const int64_t cap_;
  std::vector<int32_t> rank_, pending_;
  std::vector<std::vector<int32_t>> after_;
  std::vector<std::vector<int32_t>> waits_;       // by node: nodes of other lanes that it reads, through views too
  std::vector<bool> late_;                        // by node
  std::vector<bool> read_;                        // by node of another lane: the compute lane reads its results
  std::vector<int32_t> started_;                  // by node of another lane: its place in out_
  std::array<int32_t, std::size(kLanes)> known_;  // by lane: the last start that the compute lane has waited for
  std::vector<int32_t> flying_;                   // nodes of other lanes that the compute lane has not waited for
  std::vector<int32_t> views_, out_;
  // Nodes whose inputs are there: of other lanes, of compute without and with results of other lanes, and those that
  // would have to wait.
  Ready aside_, open_, retiring_, blocked_;
  int64_t in_flight_ = 0;  // bytes
};

}  // namespace

std::vector<int32_t> overlap_lanes(const Graph& g, std::span<const std::vector<int32_t>> before,
                                   std::span<const int32_t> order, std::span<const Lane> lanes, int64_t in_flight) {
  return OverlapOrder(g, before, order, lanes, in_flight).run();
}

}  // namespace lathe
