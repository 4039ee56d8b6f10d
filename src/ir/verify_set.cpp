// The rules of sets; those of single graphs are in verify.cpp.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/verify.h"

namespace lathe {

void verify(const StepSet& set, Level level, std::string_view after, MadeBy made_by) {
  const auto fail = [&](const std::string& what) {
    const std::string text =
        fmt::format("the step set is not valid{}{}: {}", after.empty() ? "" : " after pass ", after, what);
    if (made_by == MadeBy::caller) throw UserError(text);
    throw InternalError(text);
  };
  std::unordered_map<std::string_view, const StateSpec*> rows;
  for (const StateSpec& s : set.state) {
    if (!rows.emplace(s.name, &s).second) fail(fmt::format("two rows of the state table are named \"{}\"", s.name));
    if (!is_state(s.kind)) fail(fmt::format("state \"{}\" is of kind {}", s.name, to_string(s.kind)));
    if (!s.file.plain() && Shape(s.file.view).numel() != s.type.numel())
      fail(fmt::format("state \"{}\": {} is not {} elements in files", s.name, to_string(s.type),
                       Shape(s.file.view).numel()));
  }
  std::unordered_set<std::string_view> names, named;
  for (const Graph& g : set.graphs) {
    if (!names.insert(g.name).second) fail(fmt::format("two graphs are named \"{}\"", g.name));
    verify(g, level, after, made_by);
    for (const Input& in : g.inputs) {
      const auto row = rows.find(in.name);
      if (!is_state(in.kind)) {
        if (row != rows.end())
          fail(fmt::format("graph \"{}\": input \"{}\" is of kind {} and has the name of a state", g.name, in.name,
                           to_string(in.kind)));
        continue;
      }
      if (row == rows.end()) fail(fmt::format("graph \"{}\": state input \"{}\" is not in the table", g.name, in.name));
      const StateSpec& s = *row->second;
      if (s.type != g.type(in.value) || s.kind != in.kind)
        fail(fmt::format("graph \"{}\": state \"{}\" is {} {}, the table says {} {}", g.name, in.name,
                         to_string(in.kind), to_string(g.type(in.value)), to_string(s.kind), to_string(s.type)));
      named.insert(s.name);
    }
  }
  for (const StateSpec& s : set.state)
    if (!named.contains(s.name)) fail(fmt::format("no graph reads or writes the state \"{}\"", s.name));
}

}  // namespace lathe
