#include "io/hash.h"

#include <xxhash.h>

#include <algorithm>
#include <new>

namespace lathe::io {

namespace {

std::string to_hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", static_cast<uint64_t>(hash.high64), static_cast<uint64_t>(hash.low64));
}

}  // namespace

struct Hasher::State {
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> xxh{XXH3_createState(), XXH3_freeState};
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  if (!state_->xxh) throw std::bad_alloc();
  XXH3_128bits_reset(state_->xxh.get());
}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;

void Hasher::update(std::span<const std::byte> data) {
  if (!data.empty()) XXH3_128bits_update(state_->xxh.get(), data.data(), data.size());
}

std::string Hasher::hex() const { return to_hex(XXH3_128bits_digest(state_->xxh.get())); }

std::string hash_bytes(std::span<const std::byte> data) { return to_hex(XXH3_128bits(data.data(), data.size())); }

std::vector<FileDigest> digest_pieces(Fs& fs, const std::string& path, std::span<const int64_t> sizes) {
  constexpr int64_t kBlock = 1 << 20;
  const File file = File::open_read(fs, path);
  std::vector<std::byte> block;
  std::vector<FileDigest> digests;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    block.resize(static_cast<size_t>(std::min(size, kBlock)));
    Hasher hasher;
    for (int64_t at = 0; at < size; at += kBlock) {
      const auto part = std::span(block).first(static_cast<size_t>(std::min(kBlock, size - at)));
      file.read_at(begin + at, part);
      hasher.update(part);
    }
    digests.push_back({.size = size, .xxh3 = hasher.hex()});
    begin += size;
  }
  return digests;
}

FileDigest digest_file(Fs& fs, const std::string& path) {
  const int64_t size = File::open_read(fs, path).size();
  return digest_pieces(fs, path, std::span(&size, 1)).front();
}

}  // namespace lathe::io
