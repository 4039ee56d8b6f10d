// Keys that choose a row of a table, and the keys that the row's settings are.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

#include "nn/families/model.h"
#include "nn/step/loss.h"
#include "recipe/recipe_keys.h"

namespace lathe {
namespace {

std::vector<TableType> family_rows(bool custom) {
  std::vector<TableType> out;
  for (const ModelFamily& f : model_families())
    if (custom || !is_own_family(f.name())) out.push_back({f.name(), f.info.doc, f.schema});
  return out;
}

std::vector<TableType> loss_rows() {
  std::vector<TableType> out{{auto_loss().name(), auto_loss().info.doc, auto_loss().schema}};
  for (const LossRule& l : loss_rules()) out.push_back({l.name(), l.info.doc, l.schema});
  return out;
}

constexpr KeyChoice kChoices[] = {
    {"model.family",
     [](Recipe& r) -> std::string& { return r.model.family; },
     [](Recipe& r) -> ParamSet& { return r.model.params; },
     [] { return family_rows(true); },
     [] { return family_rows(false); },
     nullptr,
     {}},
    // "auto" has the settings of the loss that it stands for.
    {"train.loss", [](Recipe& r) -> std::string& { return r.train.loss.name; },
     [](Recipe& r) -> ParamSet& { return r.train.loss.params; }, loss_rows, loss_rows,
     [](const Recipe& r, const Field& f) {
       return !is_auto(r.train.loss) || plain_loss(task_of(r)).schema().find(f.name) != nullptr;
     },
     "data.target = \"class\" or \"mask\""},
};

}  // namespace

const Schema* KeyChoice::schema_of(std::string_view row) const {
  for (const TableType& t : rows())
    if (t.name == row) return &t.schema();
  return nullptr;
}

std::span<const KeyChoice> key_choices() { return kChoices; }

namespace {

// The keys of a row's settings; made once and kept.
const std::deque<RecipeKey>& settings_of(const KeyChoice& choice, const Schema& schema) {
  static std::mutex mutex;
  static std::map<std::pair<const KeyChoice*, const Schema*>, std::deque<RecipeKey>> all;
  const std::lock_guard lock(mutex);
  const auto [found, fresh] = all.try_emplace({&choice, &schema});
  if (fresh)
    for (const Field& f : schema.fields)
      found->second.push_back({std::string(choice.section()) + std::string(f.name),
                               nullptr,
                               false,
                               true,
                               {},
                               f.allowed,
                               f.help,
                               &choice,
                               &f,
                               &schema});
  return found->second;
}

}  // namespace

RecipeKeys recipe_keys(const Recipe& r) {
  RecipeKeys out;
  for (const RecipeKey& key : section_keys()) {
    out.push_back(&key);
    if (!key.choice) continue;
    const ParamSet& params = key.choice->params(const_cast<Recipe&>(r));
    for (const RecipeKey& setting : settings_of(*key.choice, params.schema())) out.push_back(&setting);
  }
  return out;
}

RecipeKeys all_recipe_keys() {
  RecipeKeys out;
  for (const RecipeKey& key : section_keys()) {
    out.push_back(&key);
    if (!key.choice) continue;
    for (const TableType& row : key.choice->rows())
      for (const RecipeKey& setting : settings_of(*key.choice, row.schema())) out.push_back(&setting);
  }
  return out;
}

const RecipeKey* find_setting(const KeyChoice& choice, const Schema& schema, std::string_view path) {
  const auto& settings = settings_of(choice, schema);
  const auto found = std::ranges::find(settings, path, &RecipeKey::path);
  return found == settings.end() ? nullptr : &*found;
}

const RecipeKey* find_recipe_key(const Recipe& r, std::string_view path) {
  if (const RecipeKey* key = find_section_key(path)) return key;
  for (const KeyChoice& choice : kChoices)
    if (const RecipeKey* key = find_setting(choice, choice.params(const_cast<Recipe&>(r)).schema(), path)) return key;
  return nullptr;
}

const KeyChoice* find_choice(std::string_view path) {
  for (const KeyChoice& choice : kChoices) {
    if (!path.starts_with(choice.section())) continue;
    for (const TableType& row : choice.rows())
      if (find_setting(choice, row.schema(), path)) return &choice;
  }
  return nullptr;
}

FieldPtr field_of(const RecipeKey& key, Recipe& r) {
  return key.member ? key.member(r) : key.choice->params(r).at(*key.setting);
}
FieldPtr field_of(const RecipeKey& key, const Recipe& r) {
  return field_of(key, const_cast<Recipe&>(r));  // only read through
}

bool settle_choices(Recipe& r) {
  bool changed = false;
  for (const KeyChoice& choice : kChoices) {
    const Schema* schema = choice.schema_of(choice.name(r));
    if (!schema || schema == &choice.params(r).schema()) continue;
    choice.params(r) = ParamSet(*schema);
    changed = true;
  }
  return changed;
}

std::string rows_text(const KeyChoice& choice, std::span<const std::string_view> rows) {
  std::vector<std::string_view> others;
  for (const TableType& row : choice.listed())
    if (std::ranges::find(rows, row.name) == rows.end()) others.push_back(row.name);
  if (others.size() == 1) return fmt::format("a {} other than {}", choice.key, quote_toml(others[0]));
  return choice_text(choice.key, rows);
}

}  // namespace lathe
