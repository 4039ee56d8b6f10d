// XXH3-128 of streams and files: finds damage, not forgery. Text form: 32 hex digits, as `xxhsum -H2` prints them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/files/fs.h"

namespace lathe::io {

class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  void update(std::span<const std::byte> data);
  std::string hex() const;  // of everything so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct FileDigest {
  int64_t size = 0;
  std::string xxh3;
  friend bool operator==(const FileDigest&, const FileDigest&) = default;
};

std::string hash_bytes(std::span<const std::byte> data);
FileDigest digest_file(Fs&, const std::string& path);
// The same of its pieces, one behind another from its beginning. UserError: it ends before the last one does.
std::vector<FileDigest> digest_pieces(Fs&, const std::string& path, std::span<const int64_t> sizes);

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace lathe::io
