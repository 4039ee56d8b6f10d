#include "nn/families/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace lathe {

extern const ModelFamily mlp_family, cnn_family, resnet_family, mobilenetv2_family, efficientnet_family, vit_family,
    mixer_family, bert_family, unet_family, lstm_family, gpt_family, layers_family;

namespace {

constexpr const ModelFamily* kFamilies[] = {
    &mlp_family,   &cnn_family,  &resnet_family, &mobilenetv2_family, &efficientnet_family, &vit_family,
    &mixer_family, &bert_family, &unet_family,   &lstm_family,        &gpt_family,          &layers_family,
};

std::vector<ModelFamily>& families() {
  static std::vector<ModelFamily> all = [] {
    std::vector<ModelFamily> rows;
    for (const ModelFamily* f : kFamilies) rows.push_back(*f);
    return rows;
  }();
  return all;
}

}  // namespace

ModelSpec::ModelSpec(std::string_view name, const NamedValues& values)
    : family(name), params(find_family(name).schema(), values) {}

std::span<const ModelFamily> model_families() { return families(); }

const ModelFamily* find_family_row(std::string_view name) {
  const auto found = std::ranges::find(families(), name, &ModelFamily::name);
  return found == families().end() ? nullptr : &*found;
}

void register_family(const ModelFamily& f) {
  LATHE_USER_CHECK(!f.name().empty() && f.build, "a model family needs a name and a build function");
  LATHE_USER_CHECK(!find_family_row(f.name()), "model family \"{}\": the name is taken", f.name());
  LATHE_USER_CHECK(!f.schema().find("family"), "model family \"{}\": a parameter cannot be called \"family\"",
                   f.name());
  families().push_back(f);
}

bool is_custom_family(std::string_view name) {
  const ModelFamily* row = find_family_row(name);
  return row && row - families().data() >= static_cast<ptrdiff_t>(std::size(kFamilies));
}

const ModelFamily& find_family(std::string_view name) {
  if (const ModelFamily* row = find_family_row(name)) return *row;
  std::vector<std::string_view> names;
  for (const ModelFamily& f : families()) names.push_back(f.name());
  throw UserError(fmt::format("model.family: expected one of {}, got \"{}\"", fmt::join(names, ", "), name),
                  Exit::bad_recipe);
}

std::optional<TokenInput> token_input(const ModelSpec& m) {
  const ModelFamily* row = find_family_row(m.family);
  return row && row->tokens && &row->schema() == &m.params.schema() ? row->tokens(m.params) : std::nullopt;
}

std::string family_reference() {
  std::string out = "| family | what it is | weights named as in | keys | parameters |\n|---|---|---|---|---|\n";
  for (const ModelFamily& f : families())
    out += fmt::format("| `{}` | {} | {} | `{}` | {} |\n", f.name(), f.info.doc, f.info.weights,
                       fmt::join(f.schema().names(), "`, `"), f.info.published);
  return out;
}

Ints at_most(Ints values, size_t items, int64_t limit) {
  if (values.size() > items) values.resize(items);
  for (int64_t& value : values) value = at_most(value, limit);
  return values;
}

}  // namespace lathe
