// Keys that choose a row of a table, and the keys that the row's settings are.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

#include "base/error.h"
#include "nn/families/model.h"
#include "nn/step/loss.h"
#include "recipe/recipe_keys.h"
#include "recipe/sources/source.h"

namespace lathe {
namespace {

std::vector<TableType> source_rows(bool own) {
  std::vector<TableType> out;
  for (const SourceRule* s : source_rules())
    if (own || !s->facts.own) out.push_back({s->facts.name, s->facts.path, s->schema});
  return out;
}

std::vector<TableType> family_rows(bool custom) {
  std::vector<TableType> out;
  for (const ModelFamily& f : model_families())
    if (custom || !is_custom_family(f.name())) out.push_back({f.name(), f.info.doc, f.schema});
  return out;
}

std::vector<TableType> loss_rows() {
  std::vector<TableType> out{{auto_loss().name(), auto_loss().info.doc, auto_loss().schema}};
  for (const LossRule& l : loss_rules()) out.push_back({l.name(), l.info.doc, l.schema});
  return out;
}

constexpr KeyChoice kChoices[] = {
    {"data.source",
     [](Recipe& r) -> std::string& { return r.data.source.name; },
     [](Recipe& r) -> ParamSet& { return r.data.source.params; },
     [] { return source_rows(true); },
     [] { return source_rows(false); },
     [](const Recipe& r, const Field& f) {
       const SourceRule* rule = find_source(r.data.source.name);
       return !rule || !rule->used || rule->used(r, f);
     },
     {},
     {}},
    {"model.family",
     [](Recipe& r) -> std::string& { return r.model.family; },
     [](Recipe& r) -> ParamSet& { return r.model.params; },
     [] { return family_rows(true); },
     [] { return family_rows(false); },
     nullptr,
     {},
     "if the run was made by a program with a family of its own (register_family, docs/api.md), only such a program "
     "can open it"},
    // "auto" has the settings of the loss that it stands for.
    {"train.loss",
     [](Recipe& r) -> std::string& { return r.train.loss.name; },
     [](Recipe& r) -> ParamSet& { return r.train.loss.params; },
     loss_rows,
     loss_rows,
     [](const Recipe& r, const Field& f) {
       return !is_auto(r.train.loss) || plain_loss(task_of(r)).schema().find(f.name) != nullptr;
     },
     "data.target = \"class\" or \"mask\"",
     {}},
};

}  // namespace

const Schema* KeyChoice::schema_of(std::string_view row) const {
  for (const TableType& t : rows())
    if (t.name == row) return &t.schema();
  return nullptr;
}

std::span<const KeyChoice> key_choices() { return kChoices; }

namespace {

KeyEffect effect_of(const Field& f) {
  return !f.numbers ? KeyEffect::how : f.fixed ? KeyEffect::meaning : KeyEffect::numbers;
}

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
                               f.stable,
                               effect_of(f),
                               {},
                               f.allowed,
                               f.help,
                               &choice,
                               &f,
                               &schema});
  return found->second;
}

// Settings of rows by the keys of sections behind which they are listed: those that their fields name, else that of the
// field before, else the choice's own.
class Places {
 public:
  void add(const KeyChoice& choice, const Schema& schema) {
    std::string_view after = choice.key;
    for (const RecipeKey& setting : settings_of(choice, schema)) {
      if (!setting.field->after.empty()) after = setting.field->after;
      LATHE_CHECK(find_section_key(after), "{}: listed after {}, which is no key of a section", setting.path, after);
      by_key_[after].push_back(&setting);
    }
  }

  RecipeKeys with_sections() const {
    RecipeKeys out;
    for (const RecipeKey* key : section_keys()) {
      out.push_back(key);
      if (const auto found = by_key_.find(key->path); found != by_key_.end())
        out.insert(out.end(), found->second.begin(), found->second.end());
    }
    return out;
  }

 private:
  std::map<std::string_view, RecipeKeys> by_key_;
};

}  // namespace

ParamSet foreign_settings(const std::vector<std::pair<std::string, std::string>>& settings) {
  struct Texts {
    std::vector<std::string> values;
  };
  static std::mutex mutex;
  static std::map<std::vector<std::string>, Schema> schemas;  // by names; kept, as those of structs are
  std::vector<std::string> names;
  for (const auto& [name, text] : settings) names.push_back(name);
  const std::lock_guard lock(mutex);
  const auto [found, fresh] = schemas.try_emplace(std::move(names));
  Schema& schema = found->second;
  if (fresh) {
    schema = {
        &typeid(Texts),
        {},
        std::make_shared<Texts>(Texts{std::vector<std::string>(settings.size())}),
        [](const void* p) { return std::shared_ptr<void>(std::make_shared<Texts>(*static_cast<const Texts*>(p))); }};
    for (size_t i = 0; i < settings.size(); ++i)
      schema.fields.push_back({found->first[i], {.verbatim = true}, "of a program", [i](void* p) -> FieldPtr {
                                 return &static_cast<Texts*>(p)->values[i];
                               }});
  }
  ParamSet out(schema);
  for (const auto& [name, text] : settings) out.set(name, text);
  return out;
}

RecipeKeys recipe_keys(const Recipe& r) {
  Places places;
  for (const KeyChoice& choice : kChoices) places.add(choice, choice.params(const_cast<Recipe&>(r)).schema());
  return places.with_sections();
}

RecipeKeys all_recipe_keys() {
  Places places;
  for (const KeyChoice& choice : kChoices) {
    std::vector<const Schema*> seen;  // rows may share one
    for (const TableType& row : choice.rows())
      if (const Schema& s = row.schema(); std::ranges::find(seen, &s) == seen.end()) {
        seen.push_back(&s);
        places.add(choice, s);
      }
  }
  return places.with_sections();
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
  if (key.member) return key.member(r);
  return key.choice ? key.choice->params(r).at(*key.field) : r.passes.at(*key.schema, *key.field);
}
FieldPtr field_of(const RecipeKey& key, const Recipe& r) {
  if (key.field && !key.choice) return r.passes.at(*key.schema, *key.field);
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
  std::vector<std::string_view> named, others;
  for (const TableType& row : choice.listed())
    (std::ranges::find(rows, row.name) == rows.end() ? others : named).push_back(row.name);
  if (others.size() == 1) return fmt::format("a {} other than {}", choice.key, quote_toml(others[0]));
  return choice_text(choice.key, named.empty() ? rows : named);
}

}  // namespace lathe
