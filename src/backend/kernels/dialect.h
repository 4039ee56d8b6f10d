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
#define LATHE_INF INFINITY
#define LATHE_NAN NAN
#else
#define LATHE_F64 1
#define KERNEL extern "C" __global__
#define GROUP_SIZE(n) __launch_bounds__(n, 1)
#define GLOBAL
#define LOCAL __shared__
#define LOCAL_POINTER
#define DEVICE static __device__ inline
#define GROUP_ID(d) ((long)((d) == 0 ? blockIdx.x : (d) == 1 ? blockIdx.y : blockIdx.z))
#define LOCAL_ID ((int)threadIdx.x)
#define BARRIER() __syncthreads()
#define MUL_HI(a, b) __umulhi(a, b)
#define LATHE_INF __int_as_float(0x7f800000)
#define LATHE_NAN __int_as_float(0x7fc00000)
typedef unsigned char uchar;
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
