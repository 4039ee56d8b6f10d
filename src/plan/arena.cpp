#include "plan/arena.h"

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_map>

#include "base/checked.h"
#include "base/format_bytes.h"
#include "base/parallel.h"

namespace lathe {
namespace {

constexpr size_t kHolders = 12;  // values named at the peak

// First fit into chunks, each filled from its start.
class Chunks {
 public:
  explicit Chunks(const PackSpace& space) : space_(space) {}
  int64_t take(int64_t size) {
    if (size == 0) return 0;
    size_t i = 0;
    while (i < used_.size() && used_[i] + size > space_.chunk) ++i;
    if (i == used_.size()) used_.push_back(0);
    const int64_t at = static_cast<int64_t>(i) * space_.chunk + used_[i];
    used_[i] += size;
    return at;
  }
  int64_t end() const {
    return used_.empty() ? 0 : static_cast<int64_t>(used_.size() - 1) * space_.chunk + used_.back();
  }

 private:
  PackSpace space_;
  std::vector<int64_t> used_;
};

MemoryClass class_of(InputKind k) {
  switch (k) {
    case InputKind::param:
    case InputKind::buffer: return MemoryClass::weights;
    case InputKind::optimizer: return MemoryClass::optimizer;
    case InputKind::gradient: return MemoryClass::gradients;
    case InputKind::batch:
    case InputKind::step: break;
  }
  return MemoryClass::staging;
}

// The rule stands at MemoryReport.
std::vector<bool> find_gradients(const Graph& g, const StorageFacts& facts) {
  std::vector<bool> gradient(g.types.size(), false), written(g.types.size(), false);
  std::vector<bool> is_trained(g.types.size(), false);
  for (const Input& in : g.inputs)
    is_trained[static_cast<size_t>(in.value)] = in.kind == InputKind::param || in.kind == InputKind::optimizer;
  std::set<Ints> shapes;
  for (const Output& o : g.outputs) {
    if (o.updates < 0) continue;
    written[static_cast<size_t>(facts.root[static_cast<size_t>(o.value)])] = true;
    if (is_trained[static_cast<size_t>(o.updates)] && g.type(o.updates).shape.ndim() > 0)
      shapes.insert(g.type(o.updates).shape.to_ints());
  }
  if (shapes.empty()) return gradient;
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node& n = g.nodes[i];
    bool leads = false, sums = false;
    for (ValueId v : n.outputs) {
      const size_t r = static_cast<size_t>(facts.root[static_cast<size_t>(v)]);
      leads = leads || written[r] || (gradient[r] && (!facts.same_index[i].empty() || n.op->has(kView)));
      sums = sums || (gradient[r] && n.op->is_collective());
    }
    if (!leads && !sums) continue;
    for (ValueId v : n.inputs) {
      const size_t r = static_cast<size_t>(facts.root[static_cast<size_t>(v)]);
      if (facts.is_input[r] || written[r]) continue;
      if (sums || shapes.contains(g.type(v).shape.to_ints())) gradient[r] = true;
    }
  }
  return gradient;
}

}  // namespace

int64_t Arena::aligned(int64_t bytes) const { return round_up(bytes, target_.alignment); }

template <class What>
void Arena::check_size(const TensorType& t, What&& what) const {
  if (t.numel() <= space_.chunk / size_of(t.dtype)) return;
  const std::string name = what();
  const int64_t bytes = checked_mul(t.numel(), size_of(t.dtype), name);
  throw UserError(
      fmt::format("plan: {} is {} of {} bytes, the largest single allocation on {} has {}; use a smaller batch "
                  "or a smaller layer",
                  name, to_string(t), bytes, target_.name, target_.largest_allocation),
      Exit::os_error);
}

Arena::Arena(std::vector<Draft>& drafts, const Target& target) : drafts_(drafts), target_(target) {
  LATHE_CHECK(target.alignment > 0 && target.largest_allocation >= target.alignment);
  space_.alignment = target.alignment;
  space_.chunk = target.largest_allocation / target.alignment * target.alignment;
  places_.resize(drafts.size());
  for (const Draft& d : drafts) {
    for (const Input& in : d.graph.inputs) check_size(d.graph.type(in.value), [&] { return in.name; });
    for (const Node& n : d.graph.nodes)
      for (ValueId v : n.outputs)
        check_size(d.graph.type(v), [&] { return fmt::format("the result of {} {}", n.op->name(), n.origin); });
    for (size_t n = 0; n < d.graph.nodes.size(); ++n)
      if (const int32_t slot = d.storage.workspace[n]; slot >= 0)
        check_size({DType::u8, {d.storage.slots[static_cast<size_t>(slot)].bytes}}, [&] {
          return fmt::format("the workspace of {} {}", d.graph.nodes[n].op->name(), d.graph.nodes[n].origin);
        });
    gradient_.push_back(find_gradients(d.graph, d.facts));
  }
  place_state(drafts);
  Chunks chunks(space_);
  {
    std::vector<size_t> by_size(state_.size());
    for (size_t i = 0; i < by_size.size(); ++i) by_size[i] = i;
    int64_t total = 0;
    for (const Port& p : state_) total = checked_add(total, aligned(p.type.bytes()), "plan: state");
    // Where state fits into one segment it lies in the order of the model; else large tensors first, to lose less.
    if (total > space_.chunk)
      std::ranges::stable_sort(by_size,
                               [&](size_t a, size_t b) { return state_[a].type.bytes() > state_[b].type.bytes(); });
    state_address_.resize(state_.size());
    for (size_t i : by_size) {
      state_address_[i] = chunks.take(aligned(state_[i].type.bytes()));
      state_[i].buffer = buffer(state_address_[i], state_[i].type.bytes());
    }
  }
  std::unordered_map<std::string, int64_t> address;
  for (size_t i = 0; i < state_.size(); ++i) address[state_[i].name] = state_address_[i];
  int64_t base = chunks.end();
  for (size_t d = 0; d < drafts.size(); ++d) {
    const Graph& g = drafts[d].graph;
    Chunks own = chunks;
    places_[d].input.assign(g.types.size(), -1);
    for (const Input& in : g.inputs) {
      const int64_t size = aligned(g.type(in.value).bytes());
      places_[d].input[static_cast<size_t>(in.value)] = is_state(in.kind) ? address.at(in.name) : own.take(size);
      if (!is_state(in.kind)) places_[d].input_bytes += size;
    }
    base = std::max(base, own.end());
  }
  space_.base = base;
  size_t slots = 0;
  for (const Draft& d : drafts) {
    int64_t total = base;
    for (const Interval& i : d.storage.slots) total = checked_add(total, aligned(i.bytes), "plan: values");
    slots += d.storage.slots.size();
  }
  const auto pack_slots = [&](size_t d) { places_[d].packing = pack(drafts[d].storage.slots, space_); };
  if (constexpr size_t kMany = 2000; slots >= kMany)
    run_parallel(drafts.size(), pack_slots);
  else
    for (size_t d = 0; d < drafts.size(); ++d) pack_slots(d);

  const auto use = [&](int64_t at, int64_t size) {
    if (size == 0) return;
    const size_t segment = static_cast<size_t>(at / space_.chunk);
    if (used_.size() <= segment) used_.resize(segment + 1, 0);
    used_[segment] = std::max(used_[segment], at % space_.chunk + size);
  };
  for (size_t i = 0; i < state_.size(); ++i) use(state_address_[i], aligned(state_[i].type.bytes()));
  for (size_t d = 0; d < drafts.size(); ++d) {
    const Graph& g = drafts[d].graph;
    for (const Input& in : g.inputs)
      use(places_[d].input[static_cast<size_t>(in.value)], aligned(g.type(in.value).bytes()));
    for (size_t s = 0; s < drafts[d].storage.slots.size(); ++s)
      use(places_[d].packing.offsets[s], aligned(drafts[d].storage.slots[s].bytes));
  }
}

// All state of all graphs, in order of appearance.
void Arena::place_state(const std::vector<Draft>& drafts) {
  std::unordered_map<std::string, size_t> known;
  for (const Draft& d : drafts)
    for (const Input& in : d.graph.inputs) {
      if (!is_state(in.kind)) continue;
      const TensorType& t = d.graph.type(in.value);
      const auto [it, is_new] = known.emplace(in.name, state_.size());
      if (is_new) {
        state_.push_back({.name = in.name, .type = t, .kind = in.kind, .output_kind = OutputKind::state, .buffer = {}});
        continue;
      }
      const Port& p = state_[it->second];
      LATHE_CHECK(p.type == t && p.kind == in.kind, "state \"{}\" is {} {} in one graph and {} {} in \"{}\"", in.name,
                  to_string(p.kind), to_string(p.type), to_string(in.kind), to_string(t), d.graph.name);
    }
}

Buffer Arena::buffer(int64_t address, int64_t bytes) const {
  if (bytes == 0) return {};
  return {static_cast<int32_t>(address / space_.chunk), address % space_.chunk, bytes};
}

std::vector<int64_t> Arena::segments() const {
  std::vector<int64_t> out = used_;
  if (out.empty()) out.push_back(0);
  for (int64_t& bytes : out) bytes = std::max(bytes, target_.alignment);
  return out;
}

Buffer Arena::slot(size_t draft, int32_t s) const {
  return buffer(places_[draft].packing.offsets[static_cast<size_t>(s)],
                drafts_[draft].storage.slots[static_cast<size_t>(s)].bytes);
}

Buffer Arena::value(size_t draft, ValueId v) const {
  const Draft& d = drafts_[draft];
  const ValueId r = d.facts.root[static_cast<size_t>(v)], pinned = d.storage.pinned[static_cast<size_t>(r)];
  const int64_t at = places_[draft].input[static_cast<size_t>(pinned >= 0 ? pinned : r)];
  if (at >= 0) return buffer(at, d.graph.type(v).bytes());
  const int32_t s = d.storage.slot[static_cast<size_t>(r)];
  LATHE_CHECK(s >= 0, "value %{} has no memory", v);
  return slot(draft, s);
}

// Without what is lost at the ends of segments, which is not allocated.
int64_t Arena::scratch_bytes(size_t draft) const {
  const auto& slots = drafts_[draft].storage.slots;
  std::vector<int64_t> end;  // by segment from the base on: past the last byte
  for (size_t s = 0; s < slots.size(); ++s) {
    if (slots[s].bytes == 0) continue;
    const int64_t at = places_[draft].packing.offsets[s];
    const size_t segment = static_cast<size_t>(at / space_.chunk - space_.base / space_.chunk);
    if (end.size() <= segment) end.resize(segment + 1, 0);
    end[segment] = std::max(end[segment], at % space_.chunk + aligned(slots[s].bytes));
  }
  int64_t total = 0;
  for (size_t i = 0; i < end.size(); ++i)
    total += std::max<int64_t>(0, end[i] - (i == 0 ? space_.base % space_.chunk : 0));
  return total;
}

std::vector<MemoryReport::Moment> Arena::timeline(size_t draft) const {
  const Draft& d = drafts_[draft];
  const auto& slots = d.storage.slots;
  const size_t moments = d.order.size() + 1;
  std::vector<std::vector<int32_t>> starting(moments), ending(moments);
  for (size_t s = 0; s < slots.size(); ++s) {
    starting[static_cast<size_t>(slots[s].first)].push_back(static_cast<int32_t>(s));
    ending[static_cast<size_t>(slots[s].last)].push_back(static_cast<int32_t>(s));
  }
  // A slot has the class of what it was written with last.
  std::vector<int64_t MemoryReport::Moment::*> held(slots.size(), &MemoryReport::Moment::activations);
  std::vector<bool> live(slots.size(), false);
  std::vector<MemoryReport::Moment> out;
  MemoryReport::Moment now;
  for (size_t t = 0; t < moments; ++t) {
    const auto add = [&](int32_t s, int sign) {
      now.*held[static_cast<size_t>(s)] += sign * aligned(slots[static_cast<size_t>(s)].bytes);
      live[static_cast<size_t>(s)] = sign > 0;
    };
    const auto write = [&](int32_t s, int64_t MemoryReport::Moment::*as) {
      if (s < 0) return;
      const bool again = live[static_cast<size_t>(s)];
      if (again) add(s, -1);
      held[static_cast<size_t>(s)] = as;
      if (again) add(s, 1);
    };
    for (const int32_t s : starting[t]) add(s, 1);
    if (t < d.order.size()) {
      const size_t node = static_cast<size_t>(d.order[t]);
      for (const ValueId v : d.graph.nodes[node].outputs)
        write(d.storage.slot[static_cast<size_t>(v)], gradient_[draft][static_cast<size_t>(v)]
                                                          ? &MemoryReport::Moment::gradients
                                                          : &MemoryReport::Moment::activations);
      write(d.storage.workspace[node], &MemoryReport::Moment::workspace);
    }
    out.push_back(now);
    for (const int32_t s : ending[t]) add(s, -1);
  }
  return out;
}

MemoryReport Arena::report(size_t draft) const {
  const Draft& d = drafts_[draft];
  const Place& place = places_[draft];
  MemoryReport r;
  const auto count = [&](MemoryClass c, int64_t bytes) { r.by_class[static_cast<size_t>(c)] += bytes; };
  for (const Port& p : state_) count(class_of(p.kind), aligned(p.type.bytes()));
  count(MemoryClass::staging, place.input_bytes);
  const LivePeak peak = find_peak(d.storage.slots, target_.alignment);
  r.timeline = timeline(draft);
  r.peak = peak.time;
  r.holders = largest(draft, kHolders);
  const MemoryReport::Moment& m = r.timeline[static_cast<size_t>(peak.time)];
  count(MemoryClass::gradients, m.gradients);
  count(MemoryClass::activations, m.activations);
  count(MemoryClass::workspace, m.workspace);
  r.scratch = scratch_bytes(draft);
  r.lower_bound = peak.bytes;
  count(MemoryClass::activations, r.scratch - peak.bytes);
  for (int64_t bytes : r.by_class) r.total += bytes;
  return r;
}

std::vector<std::string> Arena::largest(size_t draft, size_t count) const {
  const Draft& d = drafts_[draft];
  const LivePeak peak = find_peak(d.storage.slots, target_.alignment);
  struct Held {
    int64_t bytes;
    const Input* input;  // or
    const Node* node;    // and
    ValueId value;       // -1: its workspace
  };
  std::vector<Held> all;
  for (const Input& in : d.graph.inputs) all.push_back({d.graph.type(in.value).bytes(), &in, nullptr, in.value});
  for (const Node& n : d.graph.nodes)
    for (ValueId v : n.outputs) {
      const int32_t s = d.storage.slot[static_cast<size_t>(v)];
      if (s < 0) continue;
      const Interval& i = d.storage.slots[static_cast<size_t>(s)];
      if (i.first <= peak.time && i.last >= peak.time) all.push_back({i.bytes, nullptr, &n, v});
    }
  for (size_t k = 0; k < d.graph.nodes.size(); ++k)
    if (const int32_t s = d.storage.workspace[k]; s >= 0) {
      const Interval& i = d.storage.slots[static_cast<size_t>(s)];
      if (i.first == peak.time) all.push_back({i.bytes, nullptr, &d.graph.nodes[k], -1});
    }
  std::ranges::stable_sort(all, std::greater{}, &Held::bytes);
  std::vector<std::string> out;
  for (size_t i = 0; i < std::min(count, all.size()); ++i) {
    const auto& [bytes, input, node, value] = all[i];
    std::string what;
    if (input)
      what = fmt::format("{} {}", to_string(d.graph.type(value)), input->name);
    else if (value < 0)
      what = fmt::format("workspace of {}", node->op->name());
    else
      what = fmt::format("{} {}{}({})", to_string(d.graph.type(value)), node->origin, node->origin.empty() ? "" : " ",
                         node->op->name());
    out.push_back(fmt::format("{}: {}", what, format_bytes(bytes)));
  }
  return out;
}

}  // namespace lathe
