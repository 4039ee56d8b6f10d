#include "recipe/toml_value.h"

#include <fmt/format.h>

#include "recipe/recipe_errors.h"

namespace lathe {

std::string got(const toml::node& node) {
  if (const auto* value = node.as_string()) return '"' + shown(value->get()) + '"';
  if (const auto* value = node.as_integer()) return std::to_string(value->get());
  if (const auto* value = node.as_floating_point()) return number_text(value->get());
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  if (const auto* value = node.as_array()) {
    return fmt::format("a list of {} item{}", value->size(), value->size() == 1 ? "" : "s");
  }
  return node.is_table() ? "a table" : "a date or time";
}

std::string toml_text(const toml::node& node) {
  std::string items;
  if (const auto* array = node.as_array()) {
    for (const toml::node& item : *array) items += (items.empty() ? "" : ", ") + toml_text(item);
    return "[" + items + "]";
  }
  if (const auto* table = node.as_table()) {
    for (const auto& [key, item] : *table)
      items += fmt::format("{}{} = {}", items.empty() ? "" : ", ", key.str(), toml_text(item));
    return "{ " + items + " }";
  }
  const auto* text = node.as_string();
  return text ? quote_toml(text->get()) : got(node);
}

bool get_value(const toml::node& node, int64_t& out) {
  const auto* value = node.as_integer();
  if (value) out = value->get();
  return value != nullptr;
}
bool get_value(const toml::node& node, double& out) {
  if (const auto* value = node.as_integer()) {
    out = static_cast<double>(value->get());
    return true;
  }
  const auto* value = node.as_floating_point();
  if (value) out = value->get();
  return value != nullptr;
}
bool get_value(const toml::node& node, bool& out) {
  const auto* value = node.as_boolean();
  if (value) out = value->get();
  return value != nullptr;
}
bool get_value(const toml::node& node, std::string& out) {
  const auto* value = node.as_string();
  if (value) out = value->get();
  return value != nullptr;
}
bool get_value(const toml::node& node, ByteSize& out) {
  if (const auto* value = node.as_integer()) {
    out.bytes = value->get();
    return true;
  }
  const auto* value = node.as_string();
  const auto size = value ? parse_size(value->get()) : std::nullopt;
  if (size) out = *size;
  return size.has_value();
}

bool get_value(const toml::node& node, std::optional<double>& out) { return get_value(node, out.emplace()); }

bool get_value(const toml::node& node, Strings& out) {
  out.assign(1, "");
  if (get_value(node, out[0])) return true;
  const auto* array = node.as_array();
  out.assign(array ? array->size() : 0, "");
  for (size_t i = 0; i < out.size(); ++i)
    if (!get_value((*array)[i], out[i])) return false;
  return array != nullptr;
}

}  // namespace lathe
