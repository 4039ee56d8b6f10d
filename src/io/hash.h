// XXH3-128 of streams and files: finds damage, not forgery. Text form: 32 hex digits, as `xxhsum -H2` prints them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

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

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace lathe::io
