// The rules of sets; those of single graphs are in verify.cpp.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/checked.h"
#include "ir/name_set.h"
#include "ir/verify.h"

namespace lathe {
namespace {

bool has_elements(const Ints& dims, int64_t wanted) {
  std::optional<int64_t> n = 1;
  for (const int64_t d : dims) {
    if (d < 0 || !(n = try_mul(*n, d))) return false;
  }
  return n == wanted;
}

bool is_permutation(const Ints& perm, size_t axes) {
  std::vector<bool> seen(axes, false);
  for (const int64_t a : perm) {
    if (a < 0 || a >= static_cast<int64_t>(axes) || seen[static_cast<size_t>(a)]) return false;
    seen[static_cast<size_t>(a)] = true;
  }
  return perm.size() == axes;
}

// What is wrong with a layout in files; empty: nothing.
std::string layout_problem(const StateSpec& s) {
  const auto list = [](const Ints& v) { return fmt::format("[{}]", fmt::join(v, ", ")); };
  const FileLayout& f = s.file;
  if (f.plain())
    return f.view.empty() && f.shape.empty()
               ? ""
               : fmt::format("view {} and shape {} without perm", list(f.view), list(f.shape));
  const TensorType whole = s.whole_type();
  if (!has_elements(f.view, whole.numel()))
    return fmt::format("view {} does not have the elements of {}", list(f.view), to_string(whole));
  if (!has_elements(f.shape, whole.numel()))
    return fmt::format("shape {} does not have the elements of {}", list(f.shape), to_string(whole));
  if (!is_permutation(f.perm, f.view.size()))
    return fmt::format("perm {} is no order of the {} axes of view {}", list(f.perm), f.view.size(), list(f.view));
  return "";
}

// The same of the part that a rank has.
std::string part_problem(const StateSpec& s) {
  const StatePart& p = s.part;
  const Shape& own = s.type.shape;
  if (!p.is_split()) return p.is_part() || p.first != 0 || p.axis != -1 ? "a part of it without the axis" : "";
  if (p.axis >= own.ndim()) return fmt::format("split along axis {} of {}", p.axis, to_string(s.type));
  if (!p.is_part()) return p.first != 0 ? fmt::format("begins at {} of the whole", p.first) : "";
  const auto axis = static_cast<int>(p.axis);
  Ints expected = own.to_ints();
  if (p.whole.size() == expected.size()) expected[static_cast<size_t>(axis)] = p.whole[static_cast<size_t>(axis)];
  if (p.whole != expected || p.first < 0 || own[axis] > expected[static_cast<size_t>(axis)] - p.first)
    return fmt::format("{} is no part of [{}] along axis {} from {} on", to_string(s.type), fmt::join(p.whole, ", "),
                       axis, p.first);
  return "";
}

// The same of the first value. NaN is refused because a row would not equal itself.
std::string init_problem(const StateSpec& s) {
  const Init& init = s.init;
  if (std::isnan(init.value)) return "begins at nan";
  const bool drawn = init.kind != Init::Kind::constant;
  if (s.type.dtype != DType::f32 && (drawn || init.value != 0))
    return fmt::format("is {}; only f32 begins at other values than 0", to_string(s.type));
  if (drawn && !(init.value >= 0 && std::isfinite(init.value)))
    return fmt::format("a random first value within {}", init.value);
  return "";
}

// The same of what a row says of others.
std::string relation_problem(const StateSpec& s, const StateTable& table) {
  if (!s.like.empty()) {
    const StateSpec* other = table.find(s.like);
    if (!other) return fmt::format("like \"{}\", which is not in the table", s.like);
    if (!other->like.empty()) return fmt::format("like \"{}\", which is itself a copy", s.like);
    if (other->whole_type() != s.whole_type())
      return fmt::format("{} like \"{}\", which is {}", to_string(s.whole_type()), s.like,
                         to_string(other->whole_type()));
  }
  if (s.of.empty()) return "";
  const StateSpec* owner = table.find(s.of);
  if (!owner) return fmt::format("of \"{}\", which is not in the table", s.of);
  const InputKind kind = owner->kind;
  if (kind != InputKind::param && kind != InputKind::buffer)
    return fmt::format("of \"{}\", which is of kind {}", s.of, to_string(kind));
  return "";
}

}  // namespace

void verify(const StepSet& set, Level level, std::string_view after, MadeBy made_by) {
  const auto fail = [&](const std::string& what) {
    const std::string text =
        fmt::format("the step set is not valid{}{}: {}", after.empty() ? "" : " after pass ", after, what);
    if (made_by == MadeBy::caller) throw UserError(text);
    throw InternalError(text);
  };
  for (const StateSpec& s : set.state)
    if (!is_state(s.kind)) fail(fmt::format("state \"{}\" is of kind {}", s.name, to_string(s.kind)));
  std::map<std::pair<StateFile, std::string_view>, std::string_view> saved;
  for (const StateSpec& s : set.state) {
    for (const std::string& problem :
         {part_problem(s), layout_problem(s), init_problem(s), relation_problem(s, set.state)})
      if (!problem.empty()) fail(fmt::format("state \"{}\": {}", s.name, problem));
    if (s.saved_in == StateFile::none) continue;
    const auto [other, is_new] = saved.emplace(std::pair(s.saved_in, std::string_view(s.file_name())), s.name);
    if (!is_new)
      fail(fmt::format("state \"{}\": it and \"{}\" have the name \"{}\" in the file {}", s.name, other->second,
                       s.file_name(), to_string(s.saved_in)));
  }
  NameSet names(set.graphs.size());
  for (const Graph& g : set.graphs)
    if (!names.insert(g.name)) fail(fmt::format("two graphs are named \"{}\"", g.name));
  std::vector<std::vector<uint8_t>> named(set.graphs.size());  // by graph and row
  for_each_graph(set.graphs, [&](size_t i) {
    const Graph& g = set.graphs[i];
    verify(g, level, after, made_by);
    named[i].resize(set.state.size());
    size_t next = 0;  // inputs are mostly in the order of the table: a comparison instead of a search
    for (const Input& in : g.inputs) {
      const bool is_next = next < set.state.size() && set.state[next].name == in.name;
      const StateSpec* s = is_next ? &set.state[next] : set.state.find(in.name);
      if (s) next = static_cast<size_t>(s - &set.state[0]) + 1;
      if (!is_state(in.kind)) {
        if (s)
          fail(fmt::format("graph \"{}\": input \"{}\" is of kind {} and has the name of a state", g.name, in.name,
                           to_string(in.kind)));
        continue;
      }
      if (!s) fail(fmt::format("graph \"{}\": state input \"{}\" is not in the table", g.name, in.name));
      if (s->type != g.type(in.value) || s->kind != in.kind)
        fail(fmt::format("graph \"{}\": state \"{}\" is {} {}, the table says {} {}", g.name, in.name,
                         to_string(in.kind), to_string(g.type(in.value)), to_string(s->kind), to_string(s->type)));
      named[i][static_cast<size_t>(s - &set.state[0])] = 1;
    }
  });
  for (size_t row = 0; row < set.state.size(); ++row)
    if (std::ranges::none_of(named, [&](const auto& rows) { return rows[row]; }))
      fail(fmt::format("no graph reads or writes the state \"{}\"", set.state[row].name));
  struct Fed {
    const Graph* graph;
    const Input* input;
  };
  std::unordered_map<std::string_view, Fed> inputs;  // batch and step inputs, where they came first
  for (const Graph& g : set.graphs)
    for (const Input& in : g.inputs) {
      if (is_state(in.kind)) continue;
      const Fed first = inputs.emplace(in.name, Fed{&g, &in}).first->second;
      const DType dtype = g.type(in.value).dtype, first_dtype = first.graph->type(first.input->value).dtype;
      if (first.input->kind != in.kind || first_dtype != dtype)
        fail(fmt::format("graph \"{}\": input \"{}\" is {} {}, graph \"{}\" has it as {} {}", g.name, in.name,
                         to_string(in.kind), to_string(dtype), first.graph->name, to_string(first.input->kind),
                         to_string(first_dtype)));
    }
}

}  // namespace lathe
