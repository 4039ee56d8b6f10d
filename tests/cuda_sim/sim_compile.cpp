// NVRTC: the text is preprocessed, its kernels are found, and a table of them is compiled behind it.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "sim_entry.h"
#include "sim_launch.h"

namespace lathe::sim {

extern const char* const kernel_prelude;  // the text of kernel_prelude.h

namespace {

constexpr char kMagic[8] = {'L', 'A', 'T', 'H', 'E', 'S', 'I', 'M'};

uint64_t hash_text(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

struct TempFolder {
  std::string path;
  TempFolder() {
    std::string form = (std::filesystem::temp_directory_path() / "lathe_cuda_sim_XXXXXX").string();
    if (mkdtemp(form.data())) path = form;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool run_command(const std::string& command, const std::string& log, std::string& messages) {
  if (std::system(("(" + command + ") 2>" + log).c_str()) == 0) return true;
  messages = read(log);
  return false;
}

struct Found {
  size_t at = 0;  // in the text
  std::string name, params, bounds;
};

// Position behind the parenthesis that closes the one at `open`.
size_t after_group(const std::string& text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (depth == 0) return i + 1;
  }
  return text.size();
}

std::vector<Found> find_kernels(const std::string& text) {
  static const std::regex head(R"(extern\s+"C"\s+__global__\s+(__launch_bounds__\s*)?)"), name(R"(\s*void\s+(\w+)\s*)");
  std::vector<Found> all;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), head); it != std::sregex_iterator(); ++it) {
    Found f;
    f.at = static_cast<size_t>(it->position());
    size_t at = f.at + static_cast<size_t>(it->length());
    if ((*it)[1].matched) {
      const size_t end = after_group(text, at);
      f.bounds = text.substr(at + 1, end - at - 2);
      // The second bound, blocks per multiprocessor, has no meaning here.
      int depth = 0;
      for (size_t i = 0; i < f.bounds.size(); ++i) {
        depth += f.bounds[i] == '(' ? 1 : f.bounds[i] == ')' ? -1 : 0;
        if (f.bounds[i] == ',' && depth == 0) f.bounds.resize(i);
      }
      at = end;
    }
    std::smatch m;
    const std::string rest = text.substr(at, 200);
    if (!std::regex_search(rest, m, name, std::regex_constants::match_continuous)) continue;
    f.name = m[1].str();
    at += static_cast<size_t>(m.length());
    const size_t end = after_group(text, at);
    f.params = text.substr(at + 1, end - at - 2);
    all.push_back(std::move(f));
  }
  return all;
}

// The table of kernels, with a function each that unpacks the arguments.
std::string kernel_table(const std::string& text) {
  std::string calls, rows;
  const std::vector<Found> found = find_kernels(text);
  for (size_t k = 0; k < found.size(); ++k) {
    const Found& f = found[k];
    const size_t next = k + 1 < found.size() ? found[k + 1].at : text.size();
    const bool barriers = text.substr(f.at, next - f.at).find("__syncthreads") != std::string::npos;
    std::vector<std::string> args;
    std::stringstream list(f.params);
    for (std::string parameter; std::getline(list, parameter, ',');) {
      const size_t name = parameter.find_last_not_of(" \n\t");
      const size_t cut = parameter.find_last_of(" *&\n\t", name);
      args.push_back(fmt::format("*(__typeof__(({})0)*)p[{}]", parameter.substr(0, cut + 1), args.size()));
    }
    const std::string call = fmt::format("{}({})", f.name, fmt::join(args, ", "));
    const std::string loop =
        barriers ? call + ";"
                 : "const unsigned n = sim_runtime->block_size.x;\n  for (unsigned i = 0; i < n; ++i) {\n"
                   "    sim_runtime->thread.x = sim_runtime->reversed ? n - 1 - i : i;\n    " +
                       call + ";\n  }";
    calls += fmt::format("static __attribute__((no_sanitize(\"thread\"))) void sim_run_{}(void** p) {{\n  {}\n}}\n",
                         f.name, loop);
    rows += fmt::format("  {{\"{0}\", {1}, (unsigned)({2}), {3}, sim_run_{0}}},\n", f.name, args.size(),
                        f.bounds.empty() ? "0" : f.bounds, barriers ? 1 : 0);
  }
  return fmt::format(
      "\n{}extern \"C\" const SimKernel sim_kernels[];\nconst SimKernel sim_kernels[] = {{\n{}  {{nullptr, 0, 0, 0, "
      "nullptr}}}};\n",
      calls, rows);
}

std::map<uint64_t, std::vector<char>>& image_cache() {
  static std::map<uint64_t, std::vector<char>> cache;
  return cache;
}

}  // namespace

int prelude_version() { return static_cast<int>(hash_text(kernel_prelude) % 1000000); }

std::string compile_source(const std::string& source, std::vector<char>& image) {
  auto& cache = image_cache();
  const uint64_t key = hash_text(source);
  if (const auto at = cache.find(key); at != cache.end()) {
    image = at->second;
    return "";
  }
  const TempFolder folder;
  const std::string in = folder.path + "/kernels.cpp", plain = folder.path + "/plain.txt",
                    full = folder.path + "/full.cpp", out = folder.path + "/kernels.so", log = folder.path + "/log";
  std::ofstream(in) << source;
  std::string messages;
  if (!run_command(fmt::format("{} -E -P -x c++ {} -o {}", LATHE_SIM_COMPILER, in, plain), log, messages))
    return messages;
  const std::string text = read(plain);
  std::ofstream(full) << "#define LATHE_SIM_DEVICE\n" << kernel_prelude << text << kernel_table(text);
  const std::string command = fmt::format(
      "{} -std=c++17 -O1 -w -fPIC -fno-exceptions -fno-rtti -fno-builtin-memset -ffp-contract=off -fno-math-errno "
      "-fsanitize=thread -c {} -o {}.o && {} -shared {}.o -o {} -lm",
      LATHE_SIM_COMPILER, full, out, LATHE_SIM_COMPILER, out, out);
  if (!run_command(command, log, messages)) return messages;
  ++state().counters.compilations;
  const std::string binary = read(out);
  const auto size = static_cast<uint64_t>(binary.size());
  image.assign(kMagic, kMagic + 8);
  image.insert(image.end(), reinterpret_cast<const char*>(&size), reinterpret_cast<const char*>(&size) + 8);
  image.insert(image.end(), binary.begin(), binary.end());
  cache[key] = image;
  return "";
}

SimModule* load_image(const void* image) {
  const char* p = static_cast<const char*>(image);
  if (std::memcmp(p, kMagic, 8) != 0) return nullptr;
  uint64_t size = 0;
  std::memcpy(&size, p + 8, 8);
  const int fd = memfd_create("lathe_cuda_sim", 0);
  if (fd < 0 || write(fd, p + 16, size) != static_cast<ssize_t>(size)) return nullptr;
  auto m = std::make_unique<SimModule>();
  m->library = dlopen(fmt::format("/proc/self/fd/{}", fd).c_str(), RTLD_NOW | RTLD_LOCAL);
  close(fd);
  if (!m->library) {
    std::fprintf(stderr, "cuda_sim: %s\n", dlerror());
    return nullptr;
  }
  m->runtime = static_cast<SimRuntime**>(dlsym(m->library, "sim_runtime"));
  m->kernels = static_cast<const SimKernel*>(dlsym(m->library, "sim_kernels"));
  link_map* map = nullptr;
  dlinfo(m->library, RTLD_DI_LINKMAP, &map);
  struct Range {
    Address base, begin, end;
  } range{static_cast<Address>(map->l_addr), ~Address{0}, 0};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& r = *static_cast<Range*>(data);
        if (info->dlpi_addr != r.base) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            const Address begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            r.begin = std::min(r.begin, begin);
            r.end = std::max<Address>(r.end, begin + info->dlpi_phdr[i].p_memsz);
          }
        return 1;
      },
      &range);
  m->begin = range.begin;
  m->end = range.end;
  return m.release();
}

void unload_image(SimModule* m) {
  dlclose(m->library);
  delete m;
}

// --- entry points ---------------------------------------------------------------------------------------------------

struct SimProgram {
  std::string source, log;
  std::vector<char> image;
};

static SimProgram& of(RtcProgram p) { return *reinterpret_cast<SimProgram*>(p); }

int sim_nvrtcVersion(int* major, int* minor) {
  const int version = version_of("NVRTC", 13000);
  *major = version / 1000;
  *minor = version == 13000 ? prelude_version() : version % 1000 / 10;
  return kRtcSuccess;
}
const char* sim_nvrtcGetErrorString(int error) {
  return error == kRtcErrorCompilation     ? "NVRTC_ERROR_COMPILATION"
         : error == kRtcErrorInvalidOption ? "NVRTC_ERROR_INVALID_OPTION"
                                           : "NVRTC_ERROR";
}
int sim_nvrtcCreateProgram(RtcProgram* program, const char* source, const char*, int, const char* const*,
                           const char* const*) {
  trace_call("make", "nvrtcCreateProgram");
  auto made = std::make_unique<SimProgram>();
  made->source = source;
  *program = reinterpret_cast<RtcProgram>(made.release());
  return kRtcSuccess;
}
int sim_nvrtcDestroyProgram(RtcProgram* program) {
  const std::unique_ptr<SimProgram> owned(&of(*program));
  *program = nullptr;
  return kRtcSuccess;
}
int sim_nvrtcCompileProgram(RtcProgram program, int options, const char* const* option) {
  const Lock lock(state().mutex);
  // The architectures of NVRTC 13 begin with sm_75.
  const std::set<std::string> kKnown{capability() >= 75 ? fmt::format("--gpu-architecture=sm_{}", capability()) : "",
                                     "--std=c++17", "--device-as-default-execution-space"};
  for (int i = 0; i < options; ++i)
    if (kKnown.count(option[i]) == 0)
      return report(kRtcErrorInvalidOption, fmt::format("nvrtcCompileProgram: option {}", option[i]));
  of(program).log = compile_source(of(program).source, of(program).image);
  return of(program).log.empty() ? kRtcSuccess : kRtcErrorCompilation;
}
int sim_nvrtcGetCUBINSize(RtcProgram program, size_t* bytes) {
  *bytes = of(program).image.size();
  return kRtcSuccess;
}
int sim_nvrtcGetCUBIN(RtcProgram program, char* image) {
  std::ranges::copy(of(program).image, image);
  return kRtcSuccess;
}
int sim_nvrtcGetProgramLogSize(RtcProgram program, size_t* bytes) {
  *bytes = of(program).log.size() + 1;
  return kRtcSuccess;
}
int sim_nvrtcGetProgramLog(RtcProgram program, char* log) {
  std::strcpy(log, of(program).log.c_str());
  return kRtcSuccess;
}

}  // namespace lathe::sim
