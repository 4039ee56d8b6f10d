// Kernels: blocks run one after the other. Work-items of a block are a plain loop where the text has no barrier, else
// fibers that take turns at barriers.
#include "sim_launch.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>

#include "sim_entry.h"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace lathe::sim {
namespace {

constexpr size_t kStack = 64 * 1024;

// --- fibers ---------------------------------------------------------------------------------------------------------
#if defined(__x86_64__)
using Saved = void*;
// Saves the callee's registers and the stack pointer, loads another's.
extern "C" void lathe_sim_switch(void** save, void* load);
asm(R"(
.text
.globl lathe_sim_switch
.hidden lathe_sim_switch
.type lathe_sim_switch, @function
lathe_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size lathe_sim_switch, .-lathe_sim_switch
)");
void switch_to(Saved& from, Saved& to) { lathe_sim_switch(&from, to); }
void prepare(Saved& fiber, char* stack, void (*entry)()) {
  auto* top = reinterpret_cast<uint64_t*>(stack + kStack);
  // As after a call: 16-byte aligned minus the return address.
  *--top = 0;
  *--top = reinterpret_cast<uint64_t>(entry);
  for (int i = 0; i < 6; ++i) *--top = 0;
  fiber = top;
}
#else
using Saved = ucontext_t;
void switch_to(Saved& from, Saved& to) { swapcontext(&from, &to); }
void prepare(Saved& fiber, char* stack, void (*entry)()) {
  getcontext(&fiber);
  fiber.uc_stack.ss_sp = stack;
  fiber.uc_stack.ss_size = kStack;
  fiber.uc_link = nullptr;
  makecontext(&fiber, entry, 0);
}
#endif

// --- one launch -----------------------------------------------------------------------------------------------------
struct Running {
  SimRuntime runtime{};
  const SimFunction* function = nullptr;
  void** params = nullptr;
  std::vector<Saved> fibers;
  std::vector<unsigned char> done;
  std::vector<int> waits_at;  // lines of barriers
  Saved scheduler{};
  size_t at = 0;  // fiber
  bool fibers_run = false, failed = false;
  std::vector<unsigned char> shared;        // for a check of orders: bytes of the module that the kernel has written
  size_t shared_begin = 0, shared_end = 0;  // around these
  int status = 0;
  jmp_buf out;
};
Running* running = nullptr;

char* stacks(size_t count) {
  static char* memory = nullptr;
  static size_t have = 0;
  if (count > have) {
    void* p = mmap(nullptr, count * kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) std::abort();
    memory = static_cast<char*>(p);
    have = count;
  }
  return memory;
}

bool on_stack(Address a, size_t fibers) {
  if (fibers > 0) {
    const auto base = reinterpret_cast<Address>(stacks(fibers));
    if (a >= base && a < base + fibers * kStack) return true;
  }
  static thread_local Address low = 0, high = 0;
  if (high == 0) {
    pthread_attr_t attributes;
    void* begin = nullptr;
    size_t size = 0;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &begin, &size);
    pthread_attr_destroy(&attributes);
    low = reinterpret_cast<Address>(begin);
    high = low + size;
  }
  return a >= low && a < high;
}

// An access that no allocation of the launch holds: a group-shared or private variable, or an error that ends the
// kernel.
void other_access(unsigned long address, unsigned bytes, int write) {
  Running& r = *running;
  const SimModule& m = *r.function->module;
  if (address >= m.begin && address < m.end) {
    if (write && !r.shared.empty()) {
      const size_t at = address - m.begin, end = std::min(at + bytes, r.shared.size());
      std::fill(r.shared.begin() + static_cast<ptrdiff_t>(at), r.shared.begin() + static_cast<ptrdiff_t>(end), 1);
      r.shared_begin = std::min(r.shared_begin, at);
      r.shared_end = std::max(r.shared_end, end);
    }
    return;
  }
  if (on_stack(address, r.fibers.size())) return;
  const bool misaligned = find_device(address, bytes) != nullptr;
  r.status = report(
      misaligned ? cuda::kErrorMisalignedAddress : cuda::kErrorIllegalAddress,
      fmt::format("kernel {}, block ({}, {}, {}), thread {}: {} of {} bytes at {:#x}: {}", r.function->kernel->name,
                  r.runtime.block.x, r.runtime.block.y, r.runtime.block.z, r.runtime.thread.x, write ? "write" : "read",
                  bytes, address, misaligned ? "not a multiple of the size" : describe(address)));
  r.failed = true;
  if (r.fibers_run) switch_to(r.fibers[r.at], r.scheduler);  // never resumed
  std::longjmp(r.out, 1);
}

void barrier(int line) {
  Running& r = *running;
  r.waits_at[r.at] = line;
  switch_to(r.fibers[r.at], r.scheduler);
}

void fiber_main() {
  Running& r = *running;
  r.function->kernel->run(r.params);
  r.done[r.at] = 1;
  switch_to(r.fibers[r.at], r.scheduler);
}

// All of a group are at one barrier, or all have left. A card may hang where they are not, or let some pass.
void check_barrier(Running& r) {
  const auto first_left = std::ranges::find(r.done, 1), first_waits = std::ranges::find(r.done, 0);
  if (first_waits == r.done.end()) return;
  const auto waits = static_cast<size_t>(first_waits - r.done.begin());
  const auto where =
      fmt::format("kernel {}, block ({}, {}, {}): thread {} waits at a barrier (line {})", r.function->kernel->name,
                  r.runtime.block.x, r.runtime.block.y, r.runtime.block.z, waits, r.waits_at[waits]);
  std::string what;
  if (first_left != r.done.end())
    what = fmt::format("thread {} has left", first_left - r.done.begin());
  else if (const auto other = std::ranges::find_if(r.waits_at, [&](int l) { return l != r.waits_at[waits]; });
           other != r.waits_at.end())
    what = fmt::format("thread {} waits at another (line {})", other - r.waits_at.begin(), *other);
  if (what.empty()) return;
  r.status = report(cuda::kErrorLaunchFailed, fmt::format("{}, {}", where, what));
  r.failed = true;
}

void run_block_of_fibers(Running& r, unsigned threads) {
  char* const memory = stacks(threads);
  r.fibers.resize(threads);
  r.done.assign(threads, 0);
  r.waits_at.assign(threads, 0);
  for (size_t t = 0; t < threads; ++t) prepare(r.fibers[t], memory + t * kStack, fiber_main);
  r.fibers_run = true;
  for (bool any = true; any && !r.failed;) {
    any = false;
    for (size_t i = 0; i < threads && !r.failed; ++i) {
      r.at = r.runtime.reversed ? threads - 1 - i : i;
      if (r.done[r.at]) continue;
      r.runtime.thread = {static_cast<unsigned>(r.at), 0, 0};
      switch_to(r.scheduler, r.fibers[r.at]);
      any = any || !r.done[r.at];
    }
    if (!r.failed) check_barrier(r);
  }
  r.fibers_run = false;
}

void collect(std::vector<Access>& touched) {
  for (auto& [base, m] : state().device) {
    size_t g = 0;
    const size_t count = m.touched.size();
    while (g < count) {
      if (m.touched[g] == 0) {
        ++g;
        continue;
      }
      const unsigned char kind = m.touched[g];
      size_t end = g;
      while (end < count && m.touched[end] == kind) m.touched[end++] = 0;
      const Address from = base + g * kGranule;
      const size_t bytes = std::min(end * kGranule, m.bytes) - g * kGranule;
      if (kind & 1) touched.push_back({from, bytes, false});
      if (kind & 2) touched.push_back({from, bytes, true});
      g = end;
    }
  }
}

// From the first block to the last, or the other way round.
void run_blocks(Running& r) {
  const SimIndex grid = r.runtime.grid;
  const uint64_t count = uint64_t{grid.x} * grid.y * grid.z;
  running = &r;
  *r.function->module->runtime = &r.runtime;
  if (setjmp(r.out) == 0)
    for (uint64_t i = 0; i < count && !r.failed; ++i) {
      const uint64_t at = r.runtime.reversed ? count - 1 - i : i;
      r.runtime.block = {static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                         static_cast<unsigned>(at / grid.x / grid.y)};
      for (size_t b = r.shared_begin; b < r.shared_end; ++b)
        if (r.shared[b]) *reinterpret_cast<unsigned char*>(r.function->module->begin + b) = 0xff;
      if (r.function->kernel->barriers)
        run_block_of_fibers(r, r.runtime.block_size.x);
      else
        r.function->kernel->run(r.params);
    }
  running = nullptr;
}

using DeviceBytes = std::map<Address, std::vector<unsigned char>>;
DeviceBytes device_bytes() {
  DeviceBytes all;
  for (const auto& [base, m] : state().device) {
    const auto* p = reinterpret_cast<const unsigned char*>(base);
    all[base].assign(p, p + m.bytes);
  }
  return all;
}

// Memory is as the launch in the other order left it.
int check_order(const Running& r, const DeviceBytes& expected) {
  for (const auto& [base, bytes] : expected) {
    const auto* now = reinterpret_cast<const unsigned char*>(base);
    const auto [a, b] = std::mismatch(bytes.begin(), bytes.end(), now);
    if (a != bytes.end())
      return report(cuda::kErrorLaunchFailed,
                    fmt::format("kernel {}: byte {} of an allocation of {} depends on the order of work-items: a "
                                "barrier is missing, or two of them share what one writes",
                                r.function->kernel->name, a - bytes.begin(), bytes.size()));
  }
  return cuda::kSuccess;
}

}  // namespace

void set_order_check(bool on) { state().order_check = on; }

int run_grid(const SimFunction& f, SimIndex grid, unsigned threads, std::vector<uint64_t> values,
             std::vector<Access>& touched) {
  ++state().counters.kernels;
  Running r;
  r.function = &f;
  std::vector<void*> params;
  for (uint64_t& v : values) params.push_back(&v);
  r.params = params.data();
  r.runtime.other = other_access;
  r.runtime.barrier = barrier;
  r.runtime.grid = grid;
  r.runtime.block_size = {threads, 1, 1};
  std::vector<SimRegion> regions;
  for (auto& [base, m] : state().device) regions.push_back({base, m.bytes, m.touched.data()});
  r.runtime.region = regions.data();
  r.runtime.regions = static_cast<int>(regions.size());
  const bool twice = state().order_check;
  if (twice && f.kernel->barriers) {
    r.shared.resize(f.module->end - f.module->begin);
    r.shared_begin = r.shared.size();
  }
  const DeviceBytes before = twice ? device_bytes() : DeviceBytes{};
  run_blocks(r);
  if (twice && r.status == cuda::kSuccess) {
    const DeviceBytes forward = device_bytes();
    for (const auto& [base, bytes] : before) std::memcpy(reinterpret_cast<void*>(base), bytes.data(), bytes.size());
    r.runtime.reversed = 1;
    run_blocks(r);
    if (r.status == cuda::kSuccess) r.status = check_order(r, forward);
  }
  collect(touched);
  return r.status;
}

// --- entry points ---------------------------------------------------------------------------------------------------

int sim_cuModuleLoadData(Module* module, const void* image) {
  trace_call("make", "cuModuleLoadData");
  const Lock lock(state().mutex);
  if (!in_context()) return kErrorInvalidContext;
  if (const int status = forbid_in_capture("cuModuleLoadData"); status != kSuccess) return status;
  SimModule* made = load_image(image);
  if (!made) return kErrorInvalidImage;
  state().handles.insert(made);
  *module = reinterpret_cast<Module>(made);
  return kSuccess;
}

static std::map<SimModule*, std::vector<std::unique_ptr<SimFunction>>>& functions() {
  static auto* all = new std::map<SimModule*, std::vector<std::unique_ptr<SimFunction>>>;
  return *all;
}

int sim_cuModuleUnload(Module module) {
  const Lock lock(state().mutex);
  if (!is_live(module)) return report(kErrorInvalidHandle, "cuModuleUnload: no such module");
  auto* m = reinterpret_cast<SimModule*>(module);
  for (const auto& f : functions()[m]) state().handles.erase(f.get());
  functions().erase(m);
  state().handles.erase(m);
  unload_image(m);
  return kSuccess;
}

int sim_cuModuleGetFunction(Function* function, Module module, const char* name) {
  const Lock lock(state().mutex);
  if (!is_live(module)) return report(kErrorInvalidHandle, "cuModuleGetFunction: no such module");
  auto* m = reinterpret_cast<SimModule*>(module);
  for (const SimKernel* k = m->kernels; k->name; ++k)
    if (std::strcmp(k->name, name) == 0) {
      auto f = std::make_unique<SimFunction>();
      f->module = m;
      f->kernel = k;
      state().handles.insert(f.get());
      *function = reinterpret_cast<Function>(f.get());
      functions()[m].push_back(std::move(f));
      return kSuccess;
    }
  return report(kErrorNotFound, fmt::format("cuModuleGetFunction: no kernel {}", name));
}

int sim_cuLaunchKernel(Function function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                       unsigned threads_z, unsigned shared, StreamHandle stream, void** params, void**) {
  const Lock lock(state().mutex);
  if (!is_live(function)) return report(kErrorInvalidHandle, "cuLaunchKernel: no such function");
  const SimFunction f = *reinterpret_cast<SimFunction*>(function);
  const std::string name = f.kernel->name;
  if (x == 0 || y == 0 || z == 0 || x > 2147483647u || y > state().largest_grid || z > state().largest_grid)
    return report(kErrorInvalidValue, fmt::format("cuLaunchKernel: {}: a grid of {} x {} x {} blocks", name, x, y, z));
  if (threads == 0 || threads > 1024 || threads_y != 1 || threads_z != 1)
    return report(kErrorInvalidValue, fmt::format("cuLaunchKernel: {}: blocks of {} x {} x {} threads", name, threads,
                                                  threads_y, threads_z));
  if (f.kernel->bounds != 0 && threads > f.kernel->bounds)
    return report(kErrorLaunchOutOfResources,
                  fmt::format("cuLaunchKernel: {}: {} threads, compiled for {}", name, threads, f.kernel->bounds));
  if (shared != 0) return report(kErrorInvalidValue, fmt::format("cuLaunchKernel: {}: dynamic shared memory", name));
  // Arguments are copied at the call.
  std::vector<uint64_t> values;
  for (int i = 0; i < f.kernel->params; ++i) {
    values.emplace_back();
    std::memcpy(&values.back(), params[i], 8);
  }
  return submit(stream, {"kernel " + name, [=](std::vector<Access>& touched) {
                           return run_grid(f, {x, y, z}, threads, values, touched);
                         }});
}

}  // namespace lathe::sim
