// Values of TOML as those of settings, and in words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/schema.h"
#include "recipe/toml_file.h"

namespace lathe {

std::string got(const toml::node& node);        // what is there, for errors
std::string toml_text(const toml::node& node);  // as value_text writes values

// True when the node has the type of `out`; integers are numbers too, and one string is a list.
bool get_value(const toml::node& node, int64_t& out);
bool get_value(const toml::node& node, double& out);
bool get_value(const toml::node& node, bool& out);
bool get_value(const toml::node& node, std::string& out);
bool get_value(const toml::node& node, ByteSize& out);
bool get_value(const toml::node& node, std::optional<double>& out);
bool get_value(const toml::node& node, Strings& out);

}  // namespace lathe
