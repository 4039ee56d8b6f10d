// manifest.json of a checkpoint: what it consists of and what made it. Its last member is an XXH3-128 checksum of all
// bytes before that member, so that any damage to the manifest itself is found; every later format version keeps this
// rule.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/hash.h"

namespace lathe::io {

inline constexpr int64_t kManifestVersion = 1;

struct ManifestFile {
  std::string name;
  FileDigest digest;
  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

struct Manifest {
  int64_t version = kManifestVersion;
  int64_t step = 0;
  std::string recipe_hash = {};  // the explicit defaults allow designated initialisers without warnings
  std::string software = {};     // program and version that wrote the checkpoint
  std::string isa = {};          // instruction set of the run: equal bits are promised only for an equal one
  std::map<std::string, std::string> info = {};  // whatever the training code wants to keep (world layout, ...)
  std::vector<ManifestFile> files = {};
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

std::string to_json(const Manifest&);
// UserError: damaged, or not a manifest. For a newer version only `version` and `software` are filled in.
Manifest parse_manifest(std::string_view text);

}  // namespace lathe::io
