#include "passes/bucket.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "ops/collective.h"
#include "passes/autodiff.h"
#include "passes/partition/blocks.h"

namespace lathe {
namespace {

using Bits = std::vector<uint64_t>;  // a set of ordered nodes, by their place among them

// For each node, the ordered nodes that depend on it.
std::vector<Bits> dependents(const Graph& g, const std::vector<int32_t>& place, size_t ordered) {
  std::vector<Bits> out(g.nodes.size(), Bits((ordered + 63) / 64));
  const auto read = readers(g);
  for (size_t i = g.nodes.size(); i-- > 0;)
    for (const ValueId v : g.nodes[i].outputs)
      for (const int32_t r : read[static_cast<size_t>(v)]) {
        const Bits& further = out[static_cast<size_t>(r)];
        for (size_t k = 0; k < further.size(); ++k) out[i][k] |= further[k];
        if (const int32_t at = place[static_cast<size_t>(r)]; at >= 0)
          out[i][static_cast<size_t>(at) / 64] |= uint64_t{1} << (at % 64);
      }
  return out;
}

// It costs next to nothing, and may as well run where its last input is made.
bool follows_inputs(const Node& n) {
  return n.op->has(kElementwise) || n.op->has(kView) || n.is("broadcast") || n.is("full");
}

// One or more sums that are one collective, or any other ordered node by itself.
struct Bucket {
  std::vector<size_t> nodes;  // in the order in which their inputs are ready
  int64_t bytes = 0;
  int32_t ready = -1;  // the node after which all inputs can be there; -1: at the begin
};

class Buckets {
 public:
  Buckets(const Graph& g, int64_t bytes) : g_(g), bytes_(bytes), def_(definitions(g)), ready_(g.types.size(), -1) {
    std::vector<int32_t> place(g.nodes.size(), -1);
    int32_t ordered = 0;
    for (size_t i = 0; i < g.nodes.size(); ++i) {
      const Node& n = g.nodes[i];
      if (n.op->has(kOrdered)) place[i] = ordered++;
      const int32_t now = follows_inputs(n) ? ready(n) : static_cast<int32_t>(i);
      for (const ValueId v : n.outputs) ready_[static_cast<size_t>(v)] = now;
    }
    if (ordered < 2) return;
    std::map<std::tuple<Bits, DType, int64_t>, std::vector<size_t>> groups;
    const std::vector<Bits> needed_by = dependents(g, place, static_cast<size_t>(ordered));
    for (size_t i = 0; i < g.nodes.size(); ++i) {
      const Node& n = g.nodes[i];
      if (n.op == &all_reduce_op)
        groups[{needed_by[i], g.type(n.inputs[0]).dtype, n.get<AllReduceParams>().ranks}].push_back(i);
      else if (n.op->has(kOrdered))  // what is gathered early takes memory early
        all_.push_back({{i}, 0, n.op == &all_gather_op ? static_cast<int32_t>(i) - 1 : ready(n)});
    }
    for (auto& [key, sums] : groups) {
      std::ranges::stable_sort(sums, {}, [&](size_t i) { return ready(g.nodes[i]); });
      Bucket now;
      for (const size_t i : sums) {
        int64_t size = 0;
        for (const ValueId v : g.nodes[i].inputs) size += g.type(v).bytes();
        if (2 * now.bytes >= bytes_ && now.bytes + size > bytes_ + bytes_ / 2) close(now);
        now.nodes.push_back(i);
        now.bytes += size;
        now.ready = ready(g.nodes[i]);
        if (now.bytes >= bytes_) close(now);
      }
      close(now);
    }
    // Whatever depends on a bucket is ready later than all its sums are.
    std::ranges::sort(all_, [](const Bucket& a, const Bucket& b) {
      return std::pair(a.ready, a.nodes[0]) < std::pair(b.ready, b.nodes[0]);
    });
  }

  bool empty() const { return all_.empty(); }

  // The nodes with each bucket as soon as it is ready, and what little it needs for that; what reads its results waits.
  std::vector<Node> nodes() {
    state_.assign(g_.nodes.size(), State::waits);
    for (const Bucket& b : all_)
      for (const size_t i : b.nodes) state_[i] = State::joins;
    size_t next = 0;
    std::vector<size_t> waiting;
    const auto add_buckets = [&](int32_t now) {
      const size_t before = next;
      for (; next < all_.size() && all_[next].ready <= now; ++next) add(all_[next]);
      if (next > before) std::erase_if(waiting, [&](size_t i) { return state_[i] == State::done || try_add(i); });
    };
    add_buckets(-1);
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      if (state_[i] == State::waits && !try_add(i)) waiting.push_back(i);
      add_buckets(static_cast<int32_t>(i));
    }
    LATHE_CHECK(waiting.empty() && next == all_.size());
    return std::move(out_);
  }

 private:
  enum class State : uint8_t { waits, joins, done };  // joins: it comes with its bucket

  int32_t ready(const Node& n) const {
    int32_t last = -1;
    for (const ValueId v : n.inputs) last = std::max(last, ready_[static_cast<size_t>(v)]);
    return last;
  }

  void close(Bucket& b) {
    if (!b.nodes.empty()) all_.push_back(std::move(b));
    b = {};
  }

  bool try_add(size_t i) {
    const auto is_there = [&](ValueId v) {
      const int32_t d = def_[static_cast<size_t>(v)];
      return d < 0 || state_[static_cast<size_t>(d)] == State::done;
    };
    if (!std::ranges::all_of(g_.nodes[i].inputs, is_there)) return false;
    out_.push_back(g_.nodes[i]);
    state_[i] = State::done;
    return true;
  }

  void add_inputs(size_t node) {
    for (const ValueId v : g_.nodes[node].inputs) {
      const int32_t d = def_[static_cast<size_t>(v)];
      if (d < 0 || state_[static_cast<size_t>(d)] == State::done) continue;
      LATHE_CHECK(state_[static_cast<size_t>(d)] == State::waits, "{} would wait for a bucket",
                  g_.nodes[node].op->name());
      add_inputs(static_cast<size_t>(d));
      try_add(static_cast<size_t>(d));
    }
  }

  // For people: ": fc3 to fc1", in the order of the sums.
  std::string layers_of(const Bucket& b) const {
    const auto layer = [&](size_t node) {
      std::string_view origin = g_.nodes[node].origin.str();
      if (origin.starts_with(kBackwardOrigin)) origin.remove_prefix(kBackwardOrigin.size());
      return origin;
    };
    const std::string_view first = layer(b.nodes.front()), last = layer(b.nodes.back());
    if (first.empty() && last.empty()) return "";
    return first == last || last.empty() ? fmt::format(": {}", first) : fmt::format(": {} to {}", first, last);
  }

  void add(const Bucket& b) {
    for (const size_t i : b.nodes) add_inputs(i);
    Node joined = g_.nodes[b.nodes[0]];
    if (b.nodes.size() > 1) {
      joined.origin = SharedString(fmt::format("bucket{}{}", count_++, layers_of(b)));
      joined.inputs = {};
      joined.outputs = {};
      for (const size_t i : b.nodes) {
        joined.inputs.append(g_.nodes[i].inputs);
        joined.outputs.append(g_.nodes[i].outputs);
      }
    }
    for (const size_t i : b.nodes) state_[i] = State::done;
    out_.push_back(std::move(joined));
  }

  const Graph& g_;
  const int64_t bytes_;
  const std::vector<int32_t> def_;
  std::vector<int32_t> ready_;  // by value: the node after which it can be there
  std::vector<Bucket> all_;
  std::vector<State> state_;  // by node
  std::vector<Node> out_;
  int count_ = 0;
};

Graph bucket_graph(Graph g, const PassContext& context) {
  const int64_t given = context.options.get<BucketOptions>().bytes.bytes;
  Buckets buckets(g, given > 0 ? given : bucket_bytes(context.target.link, context.mesh.ranks));
  if (buckets.empty()) return g;
  g.nodes = buckets.nodes();
  return g;
}

}  // namespace

// A ring of n ranks over b bytes takes 2 (n - 1) (latency + b / n / bandwidth).
int64_t bucket_bytes(const Link& link, int ranks) {
  constexpr double kLatencyShare = 0.1;
  constexpr int64_t kLeast = 64 << 10, kMost = 64 << 20;
  const double wanted = link.latency * link.bandwidth * ranks * (1 - kLatencyShare) / kLatencyShare;
  int64_t bytes = kLeast;
  while (bytes < kMost && static_cast<double>(2 * bytes) < wanted) bytes *= 4;
  return bytes;
}

StepSet bucket(StepSet set, const PassContext& context) {
  // Ranks that have several blocks have other nodes than ranks that have one.
  if (context.mesh.ranks == 1 || context.options.get<SameBitsOptions>().used() > 0) return set;
  return each_graph<bucket_graph>(std::move(set), context);
}

}  // namespace lathe
