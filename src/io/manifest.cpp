#include "io/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/checked.h"
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

FileDigest digest_from(const nlohmann::json& json) {
  return {.size = natural(json.at("size")), .xxh3 = json.at("xxh3").get<std::string>()};
}

nlohmann::ordered_json to_json(const FileDigest& d) { return {{"size", d.size}, {"xxh3", d.xxh3}}; }

// {"name", "size", "xxh3"}, or {"name", "pieces": [{"size", "xxh3"}, ...]}.
ManifestFile file_from(const nlohmann::json& json) {
  ManifestFile f{.name = json.at("name").get<std::string>(), .pieces = {}};
  if (!json.contains("pieces")) {
    f.pieces.push_back(digest_from(json));
    return f;
  }
  int64_t size = 0;
  for (const nlohmann::json& piece : json.at("pieces")) {
    f.pieces.push_back(digest_from(piece));
    size = checked_add(size, f.pieces.back().size, "size of a file");
  }
  LATHE_USER_CHECK(!f.pieces.empty(), "manifest: a file without pieces");
  return f;
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
    ManifestFile f = file_from(file);
    LATHE_USER_CHECK(is_plain_name(f.name) && names.insert(f.name).second, "manifest: bad or repeated file name");
    m.files.push_back(std::move(f));
  }
  return m;
}

}  // namespace

int64_t ManifestFile::size() const {
  int64_t sum = 0;
  for (const FileDigest& piece : pieces) sum += piece.size;
  return sum;
}

int64_t version_for(const Manifest& m) {
  return std::ranges::all_of(m.files, [](const ManifestFile& f) { return f.pieces.size() == 1; }) ? 1 : 2;
}

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
  for (const ManifestFile& f : m.files) {
    nlohmann::ordered_json file{{"name", f.name}};
    if (f.pieces.size() == 1)
      file.update(to_json(f.pieces[0]));
    else
      for (const FileDigest& piece : f.pieces) file["pieces"].push_back(to_json(piece));
    json["files"].push_back(std::move(file));
  }
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
