// Compiled programs on disk, one file each: magic, hash of the payload, payload. A file that does not agree with its
// hash counts as absent. Files appear whole (temporary name, then rename), so that many ranks may share a folder.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

class BinaryCache {
 public:
  explicit BinaryCache(std::string folder) : folder_(std::move(folder)) {}  // empty: nothing is kept

  static std::string
  default_folder();  // LATHE_CACHE_DIR, $XDG_CACHE_HOME/lathe or ~/.cache/lathe; "" where none is set
  std::optional<std::vector<unsigned char>> load(const std::string& key) const;
  void store(const std::string& key, const std::vector<unsigned char>&) const;  // failures are silent: it is a cache
  std::string path(const std::string& key) const;
  bool enabled() const { return !folder_.empty(); }

 private:
  std::string folder_;
};

std::string cache_key(std::string_view everything);  // 32 hexadecimal digits

// Writes the parts, one behind the other, to a file of a cache folder, which is made where it is missing; false: the
// disk refused, and what was there before still is. The first one that a process writes into a folder also takes the
// temporary files out that killed writers have left there.
bool write_cache_file(const std::string& path, std::initializer_list<std::string_view> parts);
// Temporary files of processes of this machine that are gone, and those of any writer that are older than a day.
void remove_abandoned_files(const std::string& folder);

}  // namespace lathe
