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

inline constexpr int64_t kManifestVersion = 2;  // the newest that is read; since 2 files may have several pieces

struct ManifestFile {
  std::string name;
  std::vector<FileDigest> pieces;  // in order and without holes, at least one; several where several ranks wrote it
  int64_t size() const;
  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

struct Manifest {
  int64_t version = 1;
  int64_t step = 0;
  std::string recipe_hash = {};  // the explicit defaults allow designated initialisers without warnings
  std::string software = {};     // program and version that wrote the checkpoint
  std::string isa = {};          // instruction set of the run: equal bits are promised only for an equal one
  std::map<std::string, std::string> info = {};  // whatever the training code wants to keep (world layout, ...)
  std::vector<ManifestFile> files = {};
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

int64_t version_for(const Manifest&);  // the oldest that can say what it holds
std::string to_json(const Manifest&);
// UserError: damaged, or not a manifest. For a newer version only `version` and `software` are filled in.
Manifest parse_manifest(std::string_view text);

}  // namespace lathe::io
