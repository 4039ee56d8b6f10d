// Loaded before all others (LD_PRELOAD): counts what a run takes from the heap between two of its steps, on all
// threads, by the program or library whose code asks. The steps are counted by the lines of metrics.jsonl
// (train.log_every = 1).
//
//     LATHE_HEAP_STEPS=8,40   from the line of step 8 to that of step 40
//     LATHE_HEAP_COUNT=FILE   lines of "lathe 0", "libpocl.so.2 1234"; written at the last of the steps
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace {

struct Asker {
  std::atomic<const void*> base{nullptr};  // where the object is loaded
  std::atomic<const char*> name{nullptr};
  std::atomic<long> count{0};
};
std::array<Asker, 256> g_askers;
std::atomic<bool> g_counting{false};
long g_from = -1, g_to = -1;
decltype(&fwrite) g_fwrite = nullptr;

void count(const void* caller) {
  if (!g_counting.load(std::memory_order_relaxed)) return;
  Dl_info info{};
  if (!dladdr(caller, &info)) info = {"unknown", nullptr, nullptr, nullptr};
  for (Asker& a : g_askers) {
    const void* expected = nullptr;
    if (a.base.load() != info.dli_fbase && !a.base.compare_exchange_strong(expected, info.dli_fbase) &&
        expected != info.dli_fbase)
      continue;
    a.name = info.dli_fname;
    ++a.count;
    return;
  }
}

void write_counts() {
  const char* path = std::getenv("LATHE_HEAP_COUNT");
  const int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
  if (fd < 0) return;
  for (const Asker& a : g_askers) {
    if (!a.count) continue;
    const char* name = a.name;
    const char* slash = std::strrchr(name, '/');
    char line[512];
    const int size = std::snprintf(line, sizeof line, "%s %ld\n", slash ? slash + 1 : name, a.count.load());
    if (write(fd, line, static_cast<size_t>(size)) != size) _exit(99);
  }
  if (write(fd, "end 0\n", 6) != 6) _exit(99);
  close(fd);
}

[[gnu::constructor]] void begin() {
  g_fwrite = reinterpret_cast<decltype(&fwrite)>(dlsym(RTLD_NEXT, "fwrite"));
  const char* steps = std::getenv("LATHE_HEAP_STEPS");
  if (!steps || std::sscanf(steps, "%ld,%ld", &g_from, &g_to) != 2) g_from = g_to = -1;
}

void* checked(void* p) {
  if (!p) throw std::bad_alloc();
  return p;
}

}  // namespace

#define CALLER __builtin_return_address(0)

extern "C" {
size_t fwrite(const void* data, size_t size, size_t n, FILE* file) {
  constexpr char kStart[] = "{\"step\":";
  if (size * n > sizeof kStart && std::memcmp(data, kStart, sizeof kStart - 1) == 0) {
    const long step = std::strtol(static_cast<const char*>(data) + sizeof kStart - 1, nullptr, 10);
    if (step == g_to && g_counting.exchange(false)) write_counts();
    if (step == g_from) g_counting = true;
  }
  return g_fwrite(data, size, n, file);
}

void* malloc(size_t size) {
  count(CALLER);
  return __libc_malloc(size);
}
void* calloc(size_t n, size_t size) {
  count(CALLER);
  return __libc_calloc(n, size);
}
void* realloc(void* p, size_t size) {
  count(CALLER);
  return __libc_realloc(p, size);
}
void* memalign(size_t alignment, size_t size) {
  count(CALLER);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  count(CALLER);
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  count(CALLER);
  *out = __libc_memalign(alignment, size);
  return *out ? 0 : ENOMEM;
}
}

void* operator new(size_t size) {
  count(CALLER);
  return checked(__libc_malloc(size));
}
void* operator new[](size_t size) {
  count(CALLER);
  return checked(__libc_malloc(size));
}
void* operator new(size_t size, std::align_val_t a) {
  count(CALLER);
  return checked(__libc_memalign(static_cast<size_t>(a), size));
}
void* operator new[](size_t size, std::align_val_t a) {
  count(CALLER);
  return checked(__libc_memalign(static_cast<size_t>(a), size));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  count(CALLER);
  return __libc_malloc(size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  count(CALLER);
  return __libc_malloc(size);
}
void operator delete(void* p) noexcept { __libc_free(p); }
void operator delete[](void* p) noexcept { __libc_free(p); }
void operator delete(void* p, size_t) noexcept { __libc_free(p); }
void operator delete[](void* p, size_t) noexcept { __libc_free(p); }
void operator delete(void* p, std::align_val_t) noexcept { __libc_free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { __libc_free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { __libc_free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { __libc_free(p); }
