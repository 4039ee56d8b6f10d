#include "io/hash.h"

#include <xxhash.h>

#include <algorithm>
#include <new>
#include <vector>

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

FileDigest digest_file(Fs& fs, const std::string& path) {
  constexpr int64_t kBlock = 1 << 20;
  const File file = File::open_read(fs, path);
  const int64_t size = file.size();
  std::vector<std::byte> block(static_cast<size_t>(std::min(size, kBlock)));
  Hasher hasher;
  for (int64_t at = 0; at < size; at += kBlock) {
    const auto part = std::span(block).first(static_cast<size_t>(std::min(kBlock, size - at)));
    file.read_at(at, part);
    hasher.update(part);
  }
  return {.size = size, .xxh3 = hasher.hex()};
}

}  // namespace lathe::io
