// Keys that are options of passes, and their places among the keys of sections.
#include <algorithm>
#include <deque>
#include <optional>

#include "base/error.h"
#include "passes/pass.h"
#include "recipe/recipe_keys.h"

namespace lathe {
namespace {

std::string_view prefix_of(std::string_view path) { return path.substr(0, path.rfind('.') + 1); }

// Where a key goes: behind the one that its field names, which may have no place yet, else to the end of its section.
std::optional<size_t> place_of(const RecipeKey& key, std::string_view after, const RecipeKeys& keys) {
  for (size_t i = keys.size(); i > 0; --i) {
    const std::string_view path = keys[i - 1]->path;
    if (after.empty() ? prefix_of(path) == prefix_of(key.path) : path == after) return i;
  }
  return after.empty() ? std::optional(keys.size()) : std::nullopt;
}

}  // namespace

RecipeKeys with_pass_keys(RecipeKeys keys) {
  static std::deque<RecipeKey> made;  // kept for the pointers
  struct Waiting {
    const RecipeKey* key;
    std::string_view after;
  };
  std::vector<Waiting> waiting;
  for (const OptionsRow& row : pass_options()) {
    std::string_view before;  // the field before, of the same struct and section
    for (const Field& f : row.schema().fields) {
      made.push_back({std::string(f.name),
                      nullptr,
                      f.stable,
                      f.numbers ? KeyEffect::numbers : KeyEffect::how,
                      {},
                      f.allowed,
                      f.help,
                      nullptr,
                      &f,
                      &row.schema()});
      const bool follows = f.after.empty() && prefix_of(before) == prefix_of(f.name);
      waiting.push_back({&made.back(), follows ? before : f.after});
      before = f.name;
    }
  }
  // A key may follow one that has no place yet.
  while (!waiting.empty()) {
    const size_t left = waiting.size();
    std::erase_if(waiting, [&](const Waiting& w) {
      LATHE_USER_CHECK(std::ranges::find(keys, w.key->path, &RecipeKey::path) == keys.end(),
                       "option {}: the key is taken", w.key->path);
      const auto at = place_of(*w.key, w.after, keys);
      if (at) keys.insert(keys.begin() + static_cast<ptrdiff_t>(*at), w.key);
      return at.has_value();
    });
    LATHE_USER_CHECK(waiting.size() < left, "option {}: listed after {}, which is no key", waiting[0].key->path,
                     waiting[0].after);
  }
  return keys;
}

}  // namespace lathe
