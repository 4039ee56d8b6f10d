#include "recipe/recipe.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/did_you_mean.h"
#include "base/error.h"
#include "data/file.h"
#include "io/hash.h"
#include "nn/families/model.h"
#include "recipe/recipe_builtin.h"
#include "recipe/recipe_keys.h"
#include "recipe/sources/source.h"

namespace lathe {
namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;

std::string_view section_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == path.npos ? std::string_view() : path.substr(0, dot);
}

bool looks_like_path(std::string_view text) {
  constexpr std::string_view kExtension = ".toml";
  return text.find('/') != text.npos ||
         (text.size() > kExtension.size() && text.substr(text.size() - kExtension.size()) == kExtension);
}

}  // namespace

std::string to_toml(const Recipe& recipe) {
  std::string out, section;
  Recipe written = recipe;
  reset_unused(written);
  for (const RecipeKey* key : recipe_keys(written)) {
    if (const auto next = section_of(key->path); next != section) {
      section = next;
      out += fmt::format("\n[{}]\n", section);
    }
    const std::string_view path = key->path;
    out +=
        fmt::format("{} = {}\n", section.empty() ? path : path.substr(section.size() + 1), value_text(*key, written));
  }
  return out;
}

std::vector<RecipeDifference> diff(const Recipe& a, const Recipe& b) {
  std::vector<RecipeDifference> out;
  for (const Recipe* r : {&a, &b}) {
    const Recipe& other = r == &a ? b : a;
    for (const RecipeKey* key : recipe_keys(*r)) {
      const bool in_both = find_recipe_key(other, key->path);
      if (r == &b && in_both) continue;
      if (!in_both && value_text(*key, *r) == default_text(*key)) continue;
      std::string in_a = value_text(a, key->path), in_b = value_text(b, key->path);
      if (in_a != in_b) out.push_back({key->path, std::move(in_a), std::move(in_b)});
    }
  }
  return out;
}

std::string value_text(const Recipe& recipe, std::string_view key) {
  const RecipeKey* own = find_recipe_key(recipe, key);
  return own ? value_text(*own, recipe) : "-";
}

std::string recipe_hash(const Recipe& recipe, const std::vector<std::string>& disabled_passes) {
  Recipe same = recipe;
  reset_unused(same);
  // Defaults are left out, so that a key which a later version adds leaves the runs of earlier ones what they are.
  std::string text;
  for (const RecipeKey* key : recipe_keys(same)) {
    const std::string value = value_text(*key, same);
    if (changes_numbers(same, key->path) && value != default_text(*key))
      text += fmt::format("{} = {}\n", key->path, value);
  }
  std::vector<std::string> passes = disabled_passes;
  std::sort(passes.begin(), passes.end());
  passes.erase(std::unique(passes.begin(), passes.end()), passes.end());
  text += fmt::format("disabled passes = {}\n", fmt::join(passes, " "));
  return io::hash_bytes(io::bytes_of(text));
}

bool changes_numbers(const Recipe& recipe, std::string_view key) {
  if (follows_evaluations(recipe.schedule) &&
      (key == "train.eval_every" || key == "train.monitor" || key == "train.min_delta"))
    return true;
  const RecipeKey* row = find_recipe_key(recipe, key);
  return !row || row->effect != KeyEffect::how;
}

bool changes_meaning(const Recipe& recipe, std::string_view key) {
  const RecipeKey* row = find_recipe_key(recipe, key);
  return row && row->effect == KeyEffect::meaning;
}

bool is_foreign(const Recipe& r) { return !find_family_row(r.model.family); }

bool is_custom_data(const Recipe& r) { return facts_of(r).own.has_value(); }

data::LabelKind label_kind_of(const Recipe& r) {
  const auto* found = std::ranges::find(data::kLabelKindNames, r.data.target);
  // An unknown name is an error of its own.
  return found == std::end(data::kLabelKindNames) ? data::LabelKind::class_index
                                                  : static_cast<data::LabelKind>(found - data::kLabelKindNames);
}

std::string recipe_reference() {
  // Settings that several rows have alike are one line, which names the rows.
  std::vector<std::pair<std::string, std::vector<std::string_view>>> lines;
  const auto add = [&](const RecipeKey& key, std::string_view row) {
    const std::string line = fmt::format("| `{}`{} | {} | `{}` | {} | {{}}{} |\n", key.path, key.stable ? " *" : "",
                                         type_name(key), default_text(key), allowed_text(key), key.help);
    auto found = std::ranges::find(lines, line, &decltype(lines)::value_type::first);
    if (found == lines.end()) found = lines.insert(lines.end(), {line, {}});
    if (!row.empty()) found->second.push_back(row);
  };
  for (const RecipeKey* key : all_recipe_keys()) {
    if (!key->is_setting()) {
      add(*key, "");
      continue;
    }
    for (const TableType& row : key->choice->rows())
      if (&row.schema() == key->schema) add(*key, row.name);
  }
  std::string out = "| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n";
  for (const auto& [line, rows] : lines) {
    const size_t at = line.rfind("{}");
    out += line.substr(0, at) + (rows.empty() ? "" : fmt::format("{}: ", fmt::join(rows, ", "))) + line.substr(at + 2);
  }
  return out + "\nKeys marked * are stable: scripts may rely on them.\n";
}

std::span<const BuiltinRecipe> builtin_recipes() { return embedded_recipes(); }

std::string_view recipe_summary(std::string_view text) {
  const size_t begin = text.find_first_not_of("# ");
  if (text.empty() || text[0] != '#' || begin == text.npos) return {};
  const std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
  return line.substr(0, line.find_last_not_of("\r ") + 1);
}

Recipe load_recipe(const std::string& name_or_path, const Sets& sets) {
  std::vector<std::string_view> names;
  for (const BuiltinRecipe& builtin : builtin_recipes()) {
    if (builtin.name == name_or_path) return parse_recipe(builtin.text, name_or_path, sets);
    names.push_back(builtin.name);
  }
  if (const char* kind = data::kind_of_other(name_or_path))
    throw UserError(fmt::format("{}: expected a recipe file, got {}", name_or_path, kind), Exit::missing_input);
  if (!looks_like_path(name_or_path) && !data::is_regular_file(name_or_path)) {
    const auto word = did_you_mean(name_or_path, names);
    throw UserError(fmt::format("{}: no such recipe file or built-in recipe{}; built-in recipes are: {}", name_or_path,
                                word ? fmt::format("; did you mean \"{}\"?", *word) : "", fmt::join(names, ", ")),
                    Exit::missing_input);
  }
  try {
    const auto content = data::read_file(name_or_path, kMaxFileBytes);
    return parse_recipe({reinterpret_cast<const char*>(content.data()), content.size()}, name_or_path, sets);
  } catch (const UserError& error) {
    // To the reader of files a bad file is bad data; here it is a bad recipe.
    if (error.exit_code() != Exit::bad_data) throw;
    throw UserError(error.what(), Exit::bad_recipe);
  }
}

}  // namespace lathe
