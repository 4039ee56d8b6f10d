#include "ir/step_set.h"

#include <algorithm>
#include <unordered_set>

#include "base/parallel.h"

namespace lathe {

std::string_view to_string(StateFile f) {
  switch (f) {
    case StateFile::none: return "none";
    case StateFile::model: return "model";
    case StateFile::optimizer: return "optimizer";
    case StateFile::average: return "average";
  }
  return "?";
}

const Graph* StepSet::find_graph(std::string_view name) const {
  const auto found = std::ranges::find(graphs, name, &Graph::name);
  return found == graphs.end() ? nullptr : &*found;
}

StepSet set_of(Graph g) {
  StepSet s;
  for (const Input& in : g.inputs) {
    if (!is_state(in.kind) || in.value < 0 || static_cast<size_t>(in.value) >= g.types.size()) continue;
    StateSpec spec{in.name, g.type(in.value), in.kind, {}, {}};
    if (in.kind == InputKind::optimizer) spec.saved_in = StateFile::optimizer;
    if (in.kind == InputKind::gradient) spec.saved_in = StateFile::none;
    s.state.add(std::move(spec));
  }
  s.graphs.push_back(std::move(g));
  return s;
}

namespace {

void check_same(const StateSpec& a, const StateSpec& b) {
  const auto differ = [&](const char* what, const std::string& x, const std::string& y) {
    throw UserError(fmt::format(
        "state \"{}\": {} is {} in one place and {} in another; give it (or the optimizer that makes it) a name of its "
        "own",
        a.name, what, x, y));
  };
  if (a.type != b.type) differ("its type", to_string(a.type), to_string(b.type));
  if (a.kind != b.kind) differ("its kind", std::string(to_string(a.kind)), std::string(to_string(b.kind)));
  if (a.of != b.of) differ("the parameter that it belongs to", a.of, b.of);
  if (a.owner != b.owner) differ("the optimizer that it belongs to", a.owner, b.owner);
  StateSpec c = b;
  c.gated = a.gated;  // one graph may train what another only reads
  if (a != c) differ("its first value or file", "one", "another");
}

}  // namespace

void StateTable::add(StateSpec spec) {
  if (const StateSpec* same = find(spec.name)) {
    check_same(*same, spec);
    if (spec.gated && !same->gated) {
      Data& data = own();
      data.rows[data.places.at(spec.name)].gated = true;
    }
    return;
  }
  Data& data = own();
  data.places.emplace(spec.name, data.rows.size());
  data.rows.push_back(std::move(spec));
}

const StateSpec* StateTable::find(std::string_view name) const {
  if (!data_) return nullptr;
  const auto found = data_->places.find(name);
  return found == data_->places.end() ? nullptr : &data_->rows[found->second];
}

const StateTable::Rows& StateTable::rows() const {
  static const Rows none;
  return data_ ? data_->rows : none;
}

StateTable::Data& StateTable::own() {
  if (!data_)
    data_ = std::make_shared<Data>();
  else if (data_.use_count() > 1)
    data_ = std::make_shared<Data>(*data_);
  return *data_;
}

void StateTable::index() {
  Data& data = own();
  data.places.clear();
  for (size_t i = 0; i < data.rows.size(); ++i) data.places.emplace(data.rows[i].name, i);
}

void for_each_graph(std::span<const Graph> graphs, const std::function<void(size_t)>& f) {
  constexpr size_t kLarge = 4000;  // nodes: below, starting a thread takes longer than what it would do
  size_t nodes = 0;
  for (const Graph& g : graphs) nodes += g.nodes.size();
  if (nodes >= kLarge) return run_parallel(graphs.size(), f);
  for (size_t i = 0; i < graphs.size(); ++i) f(i);
}

void merge(StepSet& to, StepSet more) {
  for (const StateSpec& s : more.state) to.state.add(s);
  for (Graph& g : more.graphs) {
    LATHE_USER_CHECK(!to.find_graph(g.name), "graph \"{}\": the name is taken", g.name);
    to.graphs.push_back(std::move(g));
  }
}

void drop_unused_state(StepSet& s) {
  std::unordered_set<std::string_view> named;
  for (const Graph& g : s.graphs)
    for (const Input& in : g.inputs) named.insert(in.name);
  s.state.erase_if([&](const StateSpec& spec) { return !named.contains(spec.name); });
  const auto is_gone = [&](const std::string& row) { return !row.empty() && !s.state.find(row); };
  if (std::ranges::none_of(s.state, [&](const StateSpec& spec) { return is_gone(spec.like) || is_gone(spec.of); }))
    return;
  StateTable table;
  for (StateSpec spec : s.state) {
    if (is_gone(spec.like)) spec.like.clear();
    if (is_gone(spec.of)) spec.of.clear();
    table.add(std::move(spec));
  }
  s.state = std::move(table);
}

Graph drop_unused_inputs(Graph g) {
  std::vector<bool> used(g.types.size(), false);
  for (const Node& n : g.nodes)
    for (ValueId v : n.inputs) used[static_cast<size_t>(v)] = true;
  for (const Output& o : g.outputs) {
    used[static_cast<size_t>(o.value)] = true;
    if (o.updates >= 0) used[static_cast<size_t>(o.updates)] = true;
  }
  std::erase_if(g.inputs, [&](const Input& in) { return !used[static_cast<size_t>(in.value)]; });
  return g;
}

bool structurally_equal(const StepSet& a, const StepSet& b) {
  const auto equal = [](const Graph& x, const Graph& y) { return structurally_equal(x, y); };
  return a.state == b.state && std::equal(a.graphs.begin(), a.graphs.end(), b.graphs.begin(), b.graphs.end(), equal);
}

}  // namespace lathe
