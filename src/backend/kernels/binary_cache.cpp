#include "backend/kernels/binary_cache.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <signal.h>
#include <unistd.h>
#include <xxhash.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

namespace lathe {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'L', 'A', 'T', 'H', 'E', 'B', 'N', '1'};
struct Header {
  char magic[8];
  uint64_t hash;
};

constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr std::chrono::hours kLongestWrite{24};

std::string machine_name() {
  char host[64] = "";
  gethostname(host, sizeof host - 1);
  return host;
}

// "FILE.machine.process.serial.tmp": processes on several machines may share the folder, and threads a process.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> serial{0};
  return fmt::format("{}.{}.{}.{}{}", path, machine_name(), getpid(), serial.fetch_add(1), kTemporarySuffix);
}

// Whether a name of temporary_name() is that of a process which ran here and runs no more.
bool writer_is_gone(std::string_view name) {
  name.remove_suffix(kTemporarySuffix.size());
  name = name.substr(0, name.rfind('.'));
  const size_t dot = name.rfind('.');
  if (dot == name.npos || !name.substr(0, dot).ends_with("." + machine_name())) return false;
  pid_t process = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + dot + 1, end, process);
  return error == std::errc() && rest == end && process > 0 && kill(process, 0) != 0 && errno == ESRCH;
}

}  // namespace

void remove_abandoned_files(const std::string& folder) {
  std::error_code error, ignored;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool ours =
        name.find(".clbin.") != name.npos || name.find(".tiles.") != name.npos || name.find(".peak.") != name.npos;
    if (!ours || !name.ends_with(kTemporarySuffix)) continue;
    const auto written = fs::last_write_time(at->path(), ignored);
    if (ignored) continue;  // renamed in the meantime
    if (writer_is_gone(name) || fs::file_time_type::clock::now() - written > kLongestWrite)
      fs::remove(at->path(), ignored);
  }
}

bool write_cache_file(const std::string& path, std::initializer_list<std::string_view> parts) {
  const std::string folder = fs::path(path).parent_path().string();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return false;
  static std::mutex mutex;
  static std::set<std::string> swept;
  if (const std::lock_guard guard(mutex); swept.insert(folder).second) remove_abandoned_files(folder);
  const std::string temporary = temporary_name(path);
  bool written = false;
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    for (const std::string_view part : parts) file.write(part.data(), static_cast<std::streamsize>(part.size()));
    file.close();
    written = file.good();
  }
  if (written) fs::rename(temporary, path, error);
  if (written && !error) return true;
  fs::remove(temporary, error);
  return false;
}

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
  Header header;
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.hash = XXH3_64bits(payload.data(), payload.size());
  write_cache_file(path(key), {{reinterpret_cast<const char*>(&header), sizeof header},
                               {reinterpret_cast<const char*>(payload.data()), payload.size()}});
}

std::string cache_key(std::string_view everything) {
  const XXH128_hash_t h = XXH3_128bits(everything.data(), everything.size());
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

}  // namespace lathe
