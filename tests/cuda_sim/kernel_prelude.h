// Compiled in front of the kernel texts, by the host's compiler: what CUDA C++ has and C++ lacks. Memory accesses are
// seen through the hooks that -fsanitize=thread calls; they are defined here, and no sanitizer is linked. Shares the
// structures below with sim_launch.cpp; includes nothing, to compile fast.
struct SimRegion {
  unsigned long begin, bytes;
  unsigned char* touched;  // per 256 bytes: bit 0 read, bit 1 written
};
struct SimIndex {
  unsigned x, y, z;
};
struct SimRuntime {
  SimRegion* region;  // all allocations
  int regions;
  int reversed;                                                     // the last work-item of a group goes first
  void (*other)(unsigned long address, unsigned bytes, int write);  // no region holds it
  void (*barrier)(int line);  // of the text: work-items of a group must meet at one barrier
  SimIndex thread, block, block_size, grid;
};
struct SimKernel {
  const char* name;
  int params;
  unsigned bounds;  // threads of __launch_bounds__; 0: none
  int barriers;     // the text waits for its group
  void (*run)(void** params);
};

#ifdef LATHE_SIM_DEVICE
extern "C" SimRuntime* sim_runtime;
SimRuntime* sim_runtime = nullptr;
#define SIM_HOOK extern "C" __attribute__((no_sanitize("thread"))) void

static inline __attribute__((no_sanitize("thread"), always_inline)) void sim_note(void* p, unsigned bytes, int write) {
  const unsigned long a = (unsigned long)p;
  SimRuntime* r = sim_runtime;
  for (int i = 0; i < r->regions; ++i) {
    const unsigned long at = a - r->region[i].begin;
    if (at < r->region[i].bytes && at + bytes <= r->region[i].bytes && a % bytes == 0) {
      r->region[i].touched[at >> 8] |= write ? 2 : 1;
      return;
    }
  }
  r->other(a, bytes, write);
}
SIM_HOOK __tsan_init() {}
SIM_HOOK __tsan_func_entry(void*) {}
SIM_HOOK __tsan_func_exit() {}
#define SIM_HOOKS(n)                                                \
  SIM_HOOK __tsan_read##n(void* p) { sim_note(p, n, 0); }           \
  SIM_HOOK __tsan_write##n(void* p) { sim_note(p, n, 1); }          \
  SIM_HOOK __tsan_unaligned_read##n(void* p) { sim_note(p, n, 0); } \
  SIM_HOOK __tsan_unaligned_write##n(void* p) { sim_note(p, n, 1); }
SIM_HOOKS(1) SIM_HOOKS(2) SIM_HOOKS(4) SIM_HOOKS(8) SIM_HOOKS(16) SIM_HOOK __tsan_read_range(void* p, unsigned long n) {
  for (unsigned long i = 0; i < n; ++i) sim_note((char*)p + i, 1, 0);
}
SIM_HOOK __tsan_write_range(void* p, unsigned long n) {
  for (unsigned long i = 0; i < n; ++i) sim_note((char*)p + i, 1, 1);
}

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
#define __forceinline__ inline
#define SIM_QUIET static inline __attribute__((no_sanitize("thread")))
// Functions, because the hooks need not see these reads.
SIM_QUIET SimIndex sim_thread() { return sim_runtime->thread; }
SIM_QUIET SimIndex sim_block() { return sim_runtime->block; }
SIM_QUIET SimIndex sim_block_size() { return sim_runtime->block_size; }
SIM_QUIET SimIndex sim_grid() { return sim_runtime->grid; }
SIM_QUIET void sim_barrier(int line) { sim_runtime->barrier(line); }
#define threadIdx sim_thread()
#define blockIdx sim_block()
#define blockDim sim_block_size()
#define gridDim sim_grid()
#define __syncthreads() sim_barrier(__LINE__)
SIM_QUIET unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long)a * b) >> 32); }
SIM_QUIET float __int_as_float(int x) {
  float y;
  __builtin_memcpy(&y, &x, 4);
  return y;
}
SIM_QUIET int __float_as_int(float x) {
  int y;
  __builtin_memcpy(&y, &x, 4);
  return y;
}
SIM_QUIET unsigned __float_as_uint(float x) { return (unsigned)__float_as_int(x); }
SIM_QUIET float __uint_as_float(unsigned x) { return __int_as_float((int)x); }
#define SIM_UNARY(name)                                            \
  SIM_QUIET float name(float x) { return __builtin_##name##f(x); } \
  SIM_QUIET double name(double x) { return __builtin_##name(x); }
#define SIM_BINARY(name)                                                       \
  SIM_QUIET float name(float x, float y) { return __builtin_##name##f(x, y); } \
  SIM_QUIET double name(double x, double y) { return __builtin_##name(x, y); }
namespace sim_math {
// clang-format off
SIM_UNARY(exp) SIM_UNARY(exp2) SIM_UNARY(expm1) SIM_UNARY(log) SIM_UNARY(log2) SIM_UNARY(log1p) SIM_UNARY(sqrt)
SIM_UNARY(tanh) SIM_UNARY(erf) SIM_UNARY(sin) SIM_UNARY(cos) SIM_UNARY(floor) SIM_UNARY(ceil) SIM_UNARY(round)
SIM_UNARY(rint) SIM_UNARY(trunc) SIM_UNARY(fabs) SIM_BINARY(pow) SIM_BINARY(fmin) SIM_BINARY(fmax)
    // clang-format on
    SIM_QUIET float rsqrt(float x) {
  return 1.0f / __builtin_sqrtf(x);
}
SIM_QUIET double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
SIM_QUIET float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
SIM_QUIET double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
SIM_QUIET int min(int a, int b) { return a < b ? a : b; }
SIM_QUIET int max(int a, int b) { return a > b ? a : b; }
SIM_QUIET float min(float a, float b) { return a < b ? a : b; }
SIM_QUIET float max(float a, float b) { return a > b ? a : b; }
}  // namespace sim_math
using namespace sim_math;
#endif
