// The common dialect: kernel texts are valid OpenCL C 1.2 and CUDA C++ after this prelude. It is compiled on the
// device, never by the host's compiler. Texts use no vector literals, mad, clamp, convert_* or INFINITY (NVRTC lacks
// them), pass every integer argument as `long`, and receive buffers as a base pointer and an offset in elements.
#if defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define LATHE_F64 1
#endif
#define KERNEL __kernel
#define GROUP_SIZE(n) __attribute__((reqd_work_group_size(n, 1, 1)))
#define GLOBAL __global
#define LOCAL __local
#define LOCAL_POINTER __local
#define DEVICE static inline
#define GROUP_ID(d) ((long)get_group_id(d))
#define LOCAL_ID ((int)get_local_id(0))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define MUL_HI(a, b) mul_hi(a, b)
#define ABS_INTEGER(a) abs(a)  // written out it becomes an intrinsic that oclgrind does not know
#define LATHE_INF INFINITY
#define LATHE_NAN NAN
#define FLOAT_BITS(x) as_uint(x)
#define BITS_FLOAT(x) as_float(x)
#else
#define LATHE_F64 1
#define KERNEL extern "C" __global__
#define GROUP_SIZE(n) __launch_bounds__(n, 1)
#define GLOBAL
#define LOCAL __shared__
#define LOCAL_POINTER
#define DEVICE static __device__ inline
#define GRID_GROUP(d) ((long)((d) == 0 ? blockIdx.x : (d) == 1 ? blockIdx.y : blockIdx.z))
#define GROUP_ID(d) GRID_GROUP(d)  // fold_grid (cuda_grid.h) puts another in its place
#define LOCAL_ID ((int)threadIdx.x)
#define BARRIER() __syncthreads()
#define MUL_HI(a, b) __umulhi(a, b)
#define ABS_INTEGER(a) ((a) < 0 ? -(a) : (a))
#define LATHE_INF __int_as_float(0x7f800000)
#define LATHE_NAN __int_as_float(0x7fc00000)
#define FLOAT_BITS(x) __float_as_uint(x)
#define BITS_FLOAT(x) __uint_as_float(x)
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
#endif

// Iterations of the next loop are independent (clang-based CPU compilers vectorise it without alias checks).
#ifdef __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT
#endif

#define MIN_OF(a, b) ((a) < (b) ? (a) : (b))
// NaN wins, as in ScalarOp::max and min.
#define MAX_NAN(a, b) ((((a) > (b)) | ((a) != (a))) ? (a) : (b))
#define MIN_NAN(a, b) ((((a) < (b)) | ((a) != (a))) ? (a) : (b))

// The 16-bit floats, as in base/dtype.h: their bits in memory, f32 in registers. Neither needs an extension nor a
// header on the user's machine.
#ifdef __CUDA_ARCH__
DEVICE float f16_value(ushort h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}
DEVICE ushort f16_bits(float x) {
  ushort h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
#else
DEVICE float f16_value(ushort h) {
  const uint u = ((uint)h & 0x7fffu) << 13, exponent = u & (0x7c00u << 13), v = u + ((127u - 15u) << 23);
  const uint tiny = FLOAT_BITS(BITS_FLOAT(v + (1u << 23)) - BITS_FLOAT(113u << 23));
  const uint out = exponent == (0x7c00u << 13) ? v + ((128u - 16u) << 23) : exponent == 0 ? tiny : v;
  return BITS_FLOAT(out | ((uint)h & 0x8000u) << 16);
}
DEVICE ushort f16_bits(float x) {
  const uint bits = FLOAT_BITS(x), sign = bits & 0x80000000u, u = bits ^ sign,
             magic = (127u - 15u + 23u - 10u + 1u) << 23;
  const uint small = FLOAT_BITS(BITS_FLOAT(u) + BITS_FLOAT(magic)) - magic;
  const uint normal = (u + ((15u - 127u) << 23) + 0xfffu + ((u >> 13) & 1u)) >> 13;
  const uint large = u > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return (ushort)((u >= ((127u + 16u) << 23) ? large : u < (113u << 23) ? small : normal) | sign >> 16);
}
#endif
DEVICE float bf16_value(ushort h) { return BITS_FLOAT((uint)h << 16); }
DEVICE ushort bf16_bits(float x) {
  const uint u = FLOAT_BITS(x), nan = (u & 0x7fffffffu) > 0x7f800000u;
  return (ushort)(nan ? u >> 16 | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

// Conversions: float to integer truncates and saturates, NaN becomes 0; integers saturate.
DEVICE int to_i32_long(long x) {
  return x < -2147483647L - 1 ? -2147483647 - 1 : x > 2147483647L ? 2147483647 : (int)x;
}
DEVICE uchar to_u8_long(long x) { return (uchar)(x < 0 ? 0 : x > 255 ? 255 : x); }
DEVICE uchar to_u8_int(int x) { return (uchar)(x < 0 ? 0 : x > 255 ? 255 : x); }
DEVICE int to_i32_float(float x) {
  return x != x ? 0 : x <= -2147483648.0f ? -2147483647 - 1 : x >= 2147483648.0f ? 2147483647 : (int)x;
}
DEVICE long to_i64_float(float x) {
  return x != x                         ? 0
         : x <= -9223372036854775808.0f ? -9223372036854775807L - 1
         : x >= 9223372036854775808.0f  ? 9223372036854774784L
                                        : (long)x;
}
DEVICE uchar to_u8_float(float x) { return x >= 255.0f ? 255 : x > 0.0f ? (uchar)x : 0; }
#ifdef LATHE_F64
DEVICE int to_i32_double(double x) {
  return x != x ? 0 : x <= -2147483648.0 ? -2147483647 - 1 : x >= 2147483647.0 ? 2147483647 : (int)x;
}
DEVICE long to_i64_double(double x) {
  return x != x                        ? 0
         : x <= -9223372036854775808.0 ? -9223372036854775807L - 1
         : x >= 9223372036854775808.0  ? 9223372036854774784L
                                       : (long)x;
}
DEVICE uchar to_u8_double(double x) { return x >= 255.0 ? 255 : x > 0.0 ? (uchar)x : 0; }
#endif
