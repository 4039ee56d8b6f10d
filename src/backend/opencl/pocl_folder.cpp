#include "backend/opencl/pocl_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/warning.h"

namespace lathe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPoclVariable = "POCL_CACHE_DIR";
constexpr std::string_view kLockSuffix = ".lock";

// Whether the file behind the descriptor is still the one of that name.
bool still_there(int file, const std::string& name) {
  struct stat mine = {}, now = {};
  return fstat(file, &mine) == 0 && stat(name.c_str(), &now) == 0 && mine.st_ino == now.st_ino &&
         mine.st_dev == now.st_dev;
}

// Folders whose lock nobody holds belong to processes that were killed.
void remove_abandoned(const std::string& parent) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    const std::string lock = entry.path().string();
    if (!lock.ends_with(kLockSuffix)) continue;
    const int file = open(lock.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) continue;
    if (flock(file, LOCK_EX | LOCK_NB) == 0 && still_there(file, lock)) {
      std::error_code ignored;
      fs::remove_all(lock.substr(0, lock.size() - kLockSuffix.size()), ignored);
      fs::remove(lock, ignored);
    }
    close(file);
  }
}

void append_number(std::vector<unsigned char>& bytes, uint64_t n) {
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<unsigned char>(n >> shift));
}

class PackedReader {
 public:
  explicit PackedReader(const std::vector<unsigned char>& bytes) : bytes_(bytes) {}
  bool at_end() const { return at_ == bytes_.size(); }
  bool number(uint64_t& n) {
    if (bytes_.size() - at_ < 8) return false;
    n = 0;
    for (int shift = 0; shift < 64; shift += 8) n |= static_cast<uint64_t>(bytes_[at_++]) << shift;
    return true;
  }
  bool text(std::string_view& t) {
    uint64_t size = 0;
    if (!number(size) || size > bytes_.size() - at_) return false;
    t = {reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<size_t>(size)};
    at_ += static_cast<size_t>(size);
    return true;
  }

 private:
  const std::vector<unsigned char>& bytes_;
  size_t at_ = 0;
};

}  // namespace

std::vector<unsigned char> pack_files(const std::string& folder, const std::set<std::string>& names) {
  std::vector<unsigned char> bytes;
  for (const std::string& name : names) {
    std::ifstream file(folder + "/" + name, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file.is_open() || file.bad()) return {};
    for (const std::string* part : {&name, &text}) {
      append_number(bytes, part->size());
      bytes.insert(bytes.end(), part->begin(), part->end());
    }
  }
  return bytes;
}

bool unpack_files(const std::string& folder, const std::vector<unsigned char>& bytes, std::set<std::string>* names) {
  for (PackedReader in(bytes); !in.at_end();) {
    std::string_view name, text;
    if (!in.text(name) || !in.text(text)) return false;
    const fs::path relative(name);
    if (relative.empty() || relative.is_absolute() || name.find("..") != name.npos) return false;
    const fs::path path = folder / relative;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    file.close();
    if (!file) return false;
    names->insert(std::string(name));
  }
  return true;
}

PoclFolder::PoclFolder(const std::string& parent) {
  const char* of_user = std::getenv(kPoclVariable);
  if (parent.empty() || (of_user && *of_user)) return;
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) return;
  remove_abandoned(parent);
  char host[64] = "";
  gethostname(host, sizeof host - 1);
  for (int i = 0; i < 1000; ++i) {
    const std::string path = fmt::format("{}/{}.{}.{}", parent, host, getpid(), i), lock = path + kLockSuffix.data();
    const int file = open(lock.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0 && errno == EEXIST) continue;
    if (file < 0) return;
    // Another process may have taken it for abandoned between these two calls.
    if (flock(file, LOCK_EX) == 0 && still_there(file, lock) && mkdir(path.c_str(), 0700) == 0) {
      path_ = path;
      lock_ = file;
      return;
    }
    close(file);
  }
}

PoclFolder::~PoclFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  fs::remove(path_ + kLockSuffix.data(), ignored);
  close(lock_);
}

namespace {

// PoCL ends the process where it cannot write, so it gets a folder that can be written to and has room.
std::string parent_of_process_folder() {
  const std::string cache = BinaryCache::default_folder();
  const char* of_user = std::getenv(kPoclVariable);
  if (cache.empty() || (of_user && *of_user)) return "";
  constexpr uintmax_t kRoom = uintmax_t{64} << 20;  // what kernels of a large recipe take, several times
  std::error_code error;
  fs::create_directories(cache, error);
  const fs::space_info space = error ? fs::space_info{} : fs::space(cache, error);
  const bool writable = !error && access(cache.c_str(), W_OK | X_OK) == 0;
  if (writable && space.available >= kRoom) return cache + "/pocl";
  const std::string instead = fmt::format("{}/lathe-{}", fs::temp_directory_path(error).string(), getuid());
  warn(fmt::format("{} {}: kernels are compiled again in {}; LATHE_CACHE_DIR names another folder", cache,
                   writable ? fmt::format("has {} MiB left, of 64 that kernels may take", space.available >> 20)
                            : "is not a folder that can be written to",
                   instead));
  // What others could write to is no place for code.
  mkdir(instead.c_str(), 0700);
  struct stat made = {};
  if (lstat(instead.c_str(), &made) != 0 || !S_ISDIR(made.st_mode) || made.st_uid != getuid() || (made.st_mode & 022))
    return "";
  return instead + "/pocl";
}

}  // namespace

PoclFolder& PoclFolder::of_process() {
  static PoclFolder folder(parent_of_process_folder());
  return folder;
}

std::set<std::string> PoclFolder::folders() const {
  std::set<std::string> found;
  std::error_code error;
  for (const auto& outer : fs::directory_iterator(path_, error))
    if (outer.is_directory(error))
      for (const auto& inner : fs::directory_iterator(outer.path(), error))
        found.insert(outer.path().filename() / inner.path().filename());
  return found;
}

std::set<std::string> PoclFolder::files(const Program& p) const {
  std::set<std::string> found;
  std::error_code error;
  for (const std::string& folder : p.folders)
    for (const auto& f : fs::recursive_directory_iterator(path_ + "/" + folder, error))
      // PoCL renames what it has written as a whole.
      if (f.is_regular_file(error) && !f.path().filename().string().starts_with("tempfile"))
        found.insert(fs::relative(f.path(), path_, error).string());
  return found;
}

bool PoclFolder::build(const BinaryCache& cache, const std::string& key, const std::function<void()>& compile) {
  const std::lock_guard guard(mutex_);
  const auto [at, is_new] = programs_.try_emplace(key);
  Program& p = at->second;
  const std::set<std::string> before = folders();
  if (is_new)
    if (const auto bytes = cache.load(key); bytes && !unpack_files(path_, *bytes, &p.kept)) {
      p.kept.clear();
      std::error_code ignored;
      for (const std::string& folder : folders())
        if (!before.contains(folder)) fs::remove_all(path_ + "/" + folder, ignored);
    }
  compile();
  for (const std::string& folder : folders())
    if (!before.contains(folder)) p.folders.insert(folder);
  return !p.kept.empty();
}

void PoclFolder::keep(const BinaryCache& cache, const std::string& key) {
  if (!cache.enabled()) return;
  const std::lock_guard guard(mutex_);
  Program& p = programs_[key];
  std::set<std::string> now = files(p);
  if (now.empty() || now == p.kept) return;
  const std::vector<unsigned char> bytes = pack_files(path_, now);
  if (bytes.empty()) return;
  cache.store(key, bytes);
  p.kept = std::move(now);
}

PoclFolderVariable::PoclFolderVariable() {
  const std::string& path = PoclFolder::of_process().path();
  if (path.empty()) return;
  setenv(kPoclVariable, path.c_str(), 1);
  set_ = true;
}

PoclFolderVariable::~PoclFolderVariable() {
  if (set_) unsetenv(kPoclVariable);
}

}  // namespace lathe
