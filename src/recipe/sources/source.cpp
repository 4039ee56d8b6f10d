#include "recipe/sources/source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace lathe {

extern const SourceRule fashion_mnist_source, synthetic_source, text_source, idx_source, cifar_source, csv_source,
    npy_source, png_source, arrays_source, pixel_arrays_source;

namespace {

// In the order in which errors and docs list them.
constexpr const SourceRule* kSources[] = {
    &fashion_mnist_source, &synthetic_source, &text_source, &idx_source,    &cifar_source,
    &csv_source,           &npy_source,       &png_source,  &arrays_source, &pixel_arrays_source,
};

}  // namespace

std::span<const SourceRule* const> source_rules() { return kSources; }

const SourceRule* find_source(std::string_view name) {
  const auto* found = std::ranges::find(kSources, name, [](const SourceRule* s) { return s->facts.name; });
  return found == std::end(kSources) ? nullptr : *found;
}

namespace {

const SourceRule& known_source(std::string_view name) {
  if (const SourceRule* rule = find_source(name)) return *rule;
  std::vector<std::string_view> names;
  for (const SourceRule* rule : kSources) names.push_back(rule->facts.name);
  throw UserError(fmt::format("data.source: expected one of {}, got \"{}\"", fmt::join(names, ", "), name),
                  Exit::bad_recipe);
}

template <class F>
SourceSpec first_source(F&& wanted) {
  const auto* found = std::ranges::find_if(kSources, [&](const SourceRule* s) { return wanted(s->facts); });
  LATHE_CHECK(found != std::end(kSources), "no such source");
  return SourceSpec((*found)->facts.name);
}

}  // namespace

SourceSpec::SourceSpec(std::string_view source, const NamedValues& values)
    : name(source), params(known_source(source).schema(), values) {}

const SourceRule& source_of(const Recipe& r) { return known_source(r.data.source.name); }

const SourceFacts& facts_of(const Recipe& r) {
  static constexpr SourceFacts unknown{};
  const SourceRule* rule = find_source(r.data.source.name);
  return rule ? rule->facts : unknown;
}

std::vector<std::string_view> source_names(bool (*wanted)(const SourceFacts&)) {
  std::vector<std::string_view> names;
  for (const SourceRule* rule : kSources)
    if (!rule->facts.own && wanted(rule->facts)) names.push_back(rule->facts.name);
  return names;
}

SourceSpec own_source(DType sample) {
  return first_source([&](const SourceFacts& f) { return f.own == sample; });
}

SourceSpec generated_source(bool tokens) {
  return first_source([&](const SourceFacts& f) { return f.generates && is_text(f) == tokens; });
}

int64_t sequence_of(const Recipe& r) {
  const auto* own = r.data.source.params.find<int64_t>("sequence");
  return own && *own > 0 ? *own : tokens_of(r).positions;
}

int64_t wanted_samples(const Recipe& r, data::Split split) {
  return split == data::Split::train ? r.data.train_samples : r.data.test_samples;
}

data::LabelKind source_target(const Recipe& r) {
  return label_kind_of(r) == data::LabelKind::image ? data::LabelKind::class_index : label_kind_of(r);
}

TokenInput tokens_of(const Recipe& r) { return token_input(r.model).value_or(TokenInput{}); }

Allowed short_text(std::string_view pattern) {
  return allow::text([](std::string_view t) { return t.size() <= 4096 && t.find('\0') == t.npos; }, pattern);
}

}  // namespace lathe
