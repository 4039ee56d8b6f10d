#include "recipe/sources/source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace lathe {

extern const SourceRule fashion_mnist_source, synthetic_source, text_source, idx_source, csv_source, npy_source,
    png_source, arrays_source, pixel_arrays_source;

namespace {

// In the order in which errors and docs list them.
constexpr const SourceRule* kSources[] = {
    &fashion_mnist_source, &synthetic_source, &text_source,   &idx_source,          &csv_source,
    &npy_source,           &png_source,       &arrays_source, &pixel_arrays_source,
};

}  // namespace

bool SourceFacts::has_target(std::string_view target) const {
  return targets.find(fmt::format(" {} ", target)) != targets.npos;
}

std::span<const SourceRule* const> source_rules() { return kSources; }

const SourceRule* find_source(std::string_view name) {
  const auto* found = std::ranges::find(kSources, name, [](const SourceRule* s) { return s->facts.name; });
  return found == std::end(kSources) ? nullptr : *found;
}

const SourceRule& source_of(const Recipe& r) {
  if (const SourceRule* rule = find_source(r.data.source)) return *rule;
  std::vector<std::string_view> names;
  for (const SourceRule* rule : kSources) names.push_back(rule->facts.name);
  throw UserError(fmt::format("data.source: expected one of {}, got \"{}\"", fmt::join(names, ", "), r.data.source),
                  Exit::bad_recipe);
}

const SourceFacts& facts_of(const Recipe& r) {
  static constexpr SourceFacts unknown{};
  const SourceRule* rule = find_source(r.data.source);
  return rule ? rule->facts : unknown;
}

std::vector<std::string_view> source_names(bool (*wanted)(const SourceFacts&)) {
  std::vector<std::string_view> names;
  for (const SourceRule* rule : kSources)
    if (!rule->facts.own && wanted(rule->facts)) names.push_back(rule->facts.name);
  return names;
}

int64_t wanted_samples(const Recipe& r, data::Split split) {
  return split == data::Split::train ? r.data.train_samples : r.data.test_samples;
}

data::Target target_of(const Recipe& r) {
  return r.data.target == "value"  ? data::Target::value
         : r.data.target == "mask" ? data::Target::mask
                                   : data::Target::label;
}

TokenInput tokens_of(const Recipe& r) { return token_input(r.model).value_or(TokenInput{}); }

}  // namespace lathe
