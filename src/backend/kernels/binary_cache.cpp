#include "backend/kernels/binary_cache.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <unistd.h>
#include <xxhash.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace lathe {
namespace {

constexpr char kMagic[8] = {'L', 'A', 'T', 'H', 'E', 'B', 'N', '1'};
struct Header {
  char magic[8];
  uint64_t hash;
};

}  // namespace

std::string BinaryCache::default_folder() {
  const auto variable = [](const char* name) {
    const char* v = std::getenv(name);
    return std::string(v ? v : "");
  };
  if (const std::string own = variable("LATHE_CACHE_DIR"); !own.empty()) return own;
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/lathe";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/lathe";
  return "";
}

std::string BinaryCache::path(const std::string& key) const { return fmt::format("{}/{}.clbin", folder_, key); }

std::optional<std::vector<unsigned char>> BinaryCache::load(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  std::ifstream file(path(key), std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  const std::streamoff size = file.tellg();
  if (size <= static_cast<std::streamoff>(sizeof(Header))) return std::nullopt;
  Header header;
  std::vector<unsigned char> payload(static_cast<size_t>(size) - sizeof(Header));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  file.read(reinterpret_cast<char*>(payload.data()), static_cast<std::streamsize>(payload.size()));
  const bool good = file && std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 &&
                    header.hash == XXH3_64bits(payload.data(), payload.size());
  if (!good) return std::nullopt;
  return payload;
}

void BinaryCache::store(const std::string& key, const std::vector<unsigned char>& payload) const {
  if (folder_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return;
  // Processes on several machines may share the folder, and threads a process.
  static std::atomic<unsigned> serial{0};
  char host[64] = "";
  gethostname(host, sizeof host - 1);
  const std::string final_path = path(key),
                    temporary = fmt::format("{}.{}.{}.{}.tmp", final_path, host, getpid(), serial.fetch_add(1));
  Header header;
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.hash = XXH3_64bits(payload.data(), payload.size());
  bool written = false;
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
    file.write(reinterpret_cast<const char*>(payload.data()), static_cast<std::streamsize>(payload.size()));
    file.close();
    written = file.good();
  }
  if (written) std::filesystem::rename(temporary, final_path, error);
  if (!written || error) std::filesystem::remove(temporary, error);
}

std::string cache_key(std::string_view everything) {
  const XXH128_hash_t h = XXH3_128bits(everything.data(), everything.size());
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

}  // namespace lathe
