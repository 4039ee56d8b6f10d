#include "io/manifest.h"

#include <nlohmann/json.hpp>
#include <set>

#include "io/checksum.h"
#include "io/files/fs.h"

namespace lathe::io {

namespace {

constexpr std::string_view kFormat = "lathe-checkpoint";

// nlohmann converts any number type silently; a size of 1.5 or -1 is damage.
int64_t natural(const nlohmann::json& value) {
  LATHE_USER_CHECK(value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX),
                   "manifest: expected a non-negative integer, got {}",
                   value.is_number() ? value.dump() : value.type_name());
  return value.get<int64_t>();
}

Manifest from_json(const nlohmann::json& json) {
  LATHE_USER_CHECK(json.at("format") == kFormat, "manifest: \"format\" is not \"{}\"", kFormat);
  Manifest m;
  m.version = natural(json.at("version"));
  LATHE_USER_CHECK(m.version >= 1, "manifest: expected version 1 or later, got {}", m.version);
  m.software = json.at("software").get<std::string>();
  if (m.version > kManifestVersion) return m;
  m.step = natural(json.at("step"));
  m.recipe_hash = json.at("recipe_hash").get<std::string>();
  m.isa = json.at("isa").get<std::string>();
  m.info = json.at("info").get<std::map<std::string, std::string>>();
  std::set<std::string> names;
  for (const nlohmann::json& file : json.at("files")) {
    ManifestFile f{.name = file.at("name").get<std::string>(),
                   .digest = {.size = natural(file.at("size")), .xxh3 = file.at("xxh3").get<std::string>()}};
    LATHE_USER_CHECK(is_plain_name(f.name) && names.insert(f.name).second, "manifest: bad or repeated file name");
    m.files.push_back(std::move(f));
  }
  return m;
}

}  // namespace

std::string to_json(const Manifest& m) {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["version"] = m.version;
  json["step"] = m.step;
  json["software"] = m.software;
  json["isa"] = m.isa;
  json["recipe_hash"] = m.recipe_hash;
  json["info"] = nlohmann::json(m.info);
  json["files"] = nlohmann::ordered_json::array();
  for (const ManifestFile& f : m.files)
    json["files"].push_back({{"name", f.name}, {"size", f.digest.size}, {"xxh3", f.digest.xxh3}});
  try {
    return with_checksum(json.dump(2));
  } catch (const nlohmann::json::exception&) {
    throw UserError("checkpoint manifest: a string is not valid UTF-8");
  }
}

Manifest parse_manifest(std::string_view text) {
  check_checksum(text, "manifest");
  try {
    return from_json(nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception& e) {
    throw UserError(fmt::format("manifest: {}", e.what()));
  }
}

}  // namespace lathe::io
