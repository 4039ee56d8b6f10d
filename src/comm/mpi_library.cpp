#include "comm/mpi_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "comm/mpi/plugin.h"

namespace lathe::comm {
namespace {

namespace fs = std::filesystem;

using Names = std::array<const char*, 2>;

// Whether a family takes a library that says it is Open MPI, and one that does not.
enum class Takes { open_mpi, others, any };

struct Family {
  const char* name;
  Names libraries;  // sonames: those with the interface that the plugin was built for
  Takes takes;
};

constexpr Family kFamilies[] = {
    {"ompi", {"libmpi.so.40"}, Takes::open_mpi},                   // Open MPI 4 and 5
    {"mpich", {"libmpi.so.12", "libmpich.so.12"}, Takes::others},  // MPICH, Intel MPI, MVAPICH; Debian's MPICH
    {"abi", {"libmpi_abi.so.1", "libmpi_abi.so.0"}, Takes::any},
};

std::string file_of(std::string_view family) { return fmt::format("lathe_mpi_{}.so", family); }

// The one line of the library's text that says what it is.
std::string brief(std::string_view text) {
  const size_t end = text.find_first_of("\n\r,");
  std::string line(text.substr(0, end));
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line;
}

bool fits(std::string_view family, std::string_view library_text) {
  const auto row = std::ranges::find(kFamilies, family, &Family::name);
  const bool is_open_mpi = library_text.find("Open MPI") != std::string_view::npos;
  // A plugin of a name that is not here is somebody's own: as mpich.
  const Takes takes = row == std::end(kFamilies) ? Takes::others : row->takes;
  return takes == Takes::any || is_open_mpi == (takes == Takes::open_mpi);
}

// What the program itself has linked or opened: a second MPI in one process cannot work.
std::string family_in_process() {
  using Version = int (*)(char*, int*);
  const auto version = reinterpret_cast<Version>(dlsym(RTLD_DEFAULT, "MPI_Get_library_version"));
  if (!version) return "";
  std::vector<char> text(64 * 1024);  // libraries differ in how much they write
  int length = 0;
  version(text.data(), &length);
  return fits("ompi", text.data()) ? "ompi" : "mpich";
}

// At most one of the libraries that are tried stays open: plugins take their symbols from whichever is.
class Search {
 public:
  explicit Search(const MpiSearch& search) : search_(search) {}

  const LatheMpi* find() {
    if (search_.setting.find('/') != std::string::npos) return find_path(search_.setting);
    const std::string own = family_in_process();
    for (const std::string& name : mpi_families(search_.launch)) {
      if (!search_.setting.empty() ? name != search_.setting : !own.empty() && name != own) continue;
      for (const Family& f : kFamilies)
        if (f.name == name)
          if (const LatheMpi* api = find_family(f, !own.empty())) return api;
    }
    return nullptr;
  }
  const std::string& tried() const { return tried_; }
  const std::string& path() const { return path_; }

 private:
  const LatheMpi* find_family(const Family& family, bool is_here) {
    const std::vector<std::string> folders = search_.folders.empty() ? plugin_folders() : search_.folders;
    for (const std::string& folder : folders) {
      const std::string path = folder + "/" + file_of(family.name);
      std::error_code ignored;
      if (!fs::exists(path, ignored)) continue;
      return is_here ? open(path, "") : open_with(path, family.libraries);
    }
    note(fmt::format("{}: it is not in {}", file_of(family.name), fmt::join(folders, " or ")));
    return nullptr;
  }

  // A plugin that somebody built may be linked with its library, and have any name.
  const LatheMpi* find_path(const std::string& path) {
    std::error_code ignored;
    LATHE_USER_CHECK(fs::exists(path, ignored), "LATHE_MPI: there is no plugin {} (environment)", path);
    if (const LatheMpi* api = open(path, "")) return api;
    for (const Family& f : kFamilies)
      if (fs::path(path).filename() == file_of(f.name)) return open_with(path, f.libraries);
    return nullptr;
  }

  const LatheMpi* open_with(const std::string& path, const Names& libraries) {
    for (const char* name : libraries) {
      if (!name) continue;
      // Global: the plugin, and the parts that libraries load themselves, find its symbols.
      void* library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
      if (!library) {
        note(dlerror());
        continue;
      }
      if (const LatheMpi* api = open(path, name)) return api;
      dlclose(library);
    }
    return nullptr;
  }

  const LatheMpi* open(const std::string& path, std::string_view with) {
    void* plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!plugin) {
      note(dlerror());
      return nullptr;
    }
    using PluginEntry = const LatheMpi* (*)();
    const auto entry = reinterpret_cast<PluginEntry>(dlsym(plugin, "lathe_mpi_plugin"));
    const LatheMpi* api = entry ? entry() : nullptr;
    if (api && api->version == LATHE_MPI_VERSION) {
      const std::string text = library_text(*api);
      if (fits(api->name, text)) {
        path_ = path;
        return api;
      }
      note(fmt::format("{}: it is for another MPI than {} ({})", path, with, brief(text)));
    } else {
      note(api ? fmt::format("{}: it has version {} of the table, this program has version {}", path, api->version,
                             LATHE_MPI_VERSION)
               : fmt::format("{}: it is no plugin", path));
    }
    dlclose(plugin);
    return nullptr;
  }

  void note(const std::string& text) { tried_ += "\n  " + text; }

  static std::string library_text(const LatheMpi& api) {
    char text[512] = "";
    api.library(text, sizeof text);
    return text;
  }

  const MpiSearch& search_;
  std::string tried_, path_;
};

// MPI is of the process: it starts once, and once it ended it cannot start again.
struct Process {
  std::mutex mutex;
  const LatheMpi* api = nullptr;
  std::string version;
  LatheMpiHandle last{};            // the group of the barrier before the end
  std::atomic<double> patience{0};  // seconds that the barrier may take; 0: MPI is left as it is
};

Process& process() {
  static Process p;
  return p;
}

// MPICH 4.0.2 with UCX does not return from MPI_Finalize once in a while (one in three of four ranks on two hosts, all
// in it: some close their connections while others wait for them in PMI's barrier). What counts is done by then.
constexpr auto kLongestFinalize = std::chrono::seconds(5);

// Ranks that are gone would be waited for by MPI_Finalize for ever: it is called once all are there.
void end_mpi(int exit_code, void*) {
  Process& p = process();
  const double patience = p.patience;
  if (patience <= 0) return;
  LatheMpiHandle request{};
  int done = 0;
  size_t count = 0;
  if (p.api->barrier(p.last, &request)) return;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience);
  for (int i = 0; !done; ++i) {
    if (p.api->test(&request, &done, &count)) return;
    if (i < 1000) continue;
    if (std::chrono::steady_clock::now() > end) return;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  std::fflush(nullptr);
  static std::atomic<bool> is_over{false};
  std::thread([exit_code] {
    std::this_thread::sleep_for(kLongestFinalize);
    if (!is_over) _exit(exit_code);
  }).detach();
  p.api->finalize();
  is_over = true;
}

}  // namespace

std::vector<std::string> mpi_families(const Launch& launch) {
  // A library that does not talk to the launcher starts every process as rank 0 of 1.
  const bool mpich_first = launch.launcher == "MPICH" || (launch.launcher != "Open MPI" && launch.pmi && !launch.pmix);
  if (mpich_first) return {"mpich", "abi", "ompi"};
  return {"ompi", "mpich", "abi"};
}

std::vector<std::string> plugin_folders() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  return {folder.string(), (folder.parent_path() / "lib" / "lathe").string()};
}

void check_mpi(const LatheMpi& api, int code, const char* what) {
  if (code == 0) return;
  char text[512] = "";
  api.error_text(code, text, sizeof text);
  throw CommError(fmt::format("MPI: {} failed: {} ({})", what, text, code));
}

const LatheMpi& mpi_library(const MpiSearch& search, double timeout) {
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  if (p.api) return *p.api;
  const std::string& setting = search.setting;
  const auto known = mpi_families({});
  LATHE_USER_CHECK(setting.empty() || setting.find('/') != std::string::npos ||
                       std::find(known.begin(), known.end(), setting) != known.end(),
                   "LATHE_MPI: expected {} or the path of a plugin, got \"{}\" (environment)", fmt::join(known, ", "),
                   setting);
  Search s(search);
  const LatheMpi* api = s.find();
  LATHE_USER_CHECK(api,
                   "MPI: no library can be used; install Open MPI or MPICH, or add its folder to LD_LIBRARY_PATH. "
                   "Tried:{}",
                   s.tried());
  int threads = 0, rank = 0, size = 0, last_tag = 0;
  check_mpi(*api, api->init(&threads), "MPI_Init_thread");
  char text[512] = "";
  api->library(text, sizeof text);
  LATHE_USER_CHECK(threads, "MPI: {} does not let several threads call it (MPI_THREAD_MULTIPLE); use another build",
                   brief(text));
  check_mpi(*api, api->join(&p.last, &rank, &size, &last_tag), "MPI_Comm_dup");
  p.version = fmt::format("{}: {}", brief(text), fs::path(s.path()).filename().string());
  p.patience = timeout;
  p.api = api;
  on_exit(end_mpi, nullptr);
  return *api;
}

void limit_mpi_end(double seconds) {
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  p.patience = std::min(p.patience.load(), seconds);
}

void end_all_ranks(int exit_code) {
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  if (p.api) p.api->end_all(exit_code);
}

std::string mpi_version() {
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  return p.version;
}

}  // namespace lathe::comm
