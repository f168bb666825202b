// SPDX-License-Identifier: Apache-2.0
#include "codegen/cuda_emit.h"

namespace pelton::codegen {

// Scalars: f16 and bf16 as float, signed integers as long long, unsigned as unsigned long long. Functions
// k_NAME are what scalar code of the op table means by NAME.
std::string_view cuda_prelude() {
  return R"cuda(
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#define K_NAN __int_as_float(0x7fffffff)
typedef long long k_s64;
typedef unsigned long long k_u64;

// Within 2e-7, for results that are rounded to 16 bits: a series near 0, else Abramowitz and Stegun 7.1.26.
__device__ inline float k_fast_erf(float x) {
  float a = fabsf(x), s = x * x;
  float t = __fdividef(1.0f, fmaf(0.3275911f, a, 1.0f));
  float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  float far = copysignf(1.0f - p * __expf(-s), x);
  float near = x * (1.12837917f + s * (-0.376126389f + s * (0.112837917f + s * (-0.0268661706f + s * 0.00522397763f))));
  return a < 0.4f ? near : far;
}
// 1 + erf(x) as 2 / (1 + exp(-x p(x^2))), within a relative 2e-5 down to 1e-7: GELU of less than 0 keeps its digits.
__device__ inline float k_fast_one_plus_erf(float x) {
  float s = fminf(x * x, 16.0f);
  float p = -3.25575542f + s * (-0.296687871f + s * (6.45055785e-4f + s * (1.79591042e-3f + s * (-2.70621531e-4f +
            s * (2.10434064e-5f + s * (-8.7243285e-7f + s * 1.51272328e-8f))))));
  return __fdividef(2.0f, 1.0f + exp2f(x * p));
}

// Kernels may be launched before the one in front of them has ended: nothing is read or written until it has.
__device__ inline void k_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;" ::: "memory");
#endif
}

__device__ inline float k_exp(float x) { return expf(x); }
__device__ inline float k_log(float x) { return logf(x); }
__device__ inline float k_log1p(float x) { return log1pf(x); }
__device__ inline float k_expm1(float x) { return expm1f(x); }
__device__ inline float k_sqrt(float x) { return sqrtf(x); }
__device__ inline float k_rsqrt(float x) { return rsqrtf(x); }
__device__ inline float k_sin(float x) { return sinf(x); }
__device__ inline float k_cos(float x) { return cosf(x); }
__device__ inline float k_tan(float x) { return tanf(x); }
__device__ inline float k_asin(float x) { return asinf(x); }
__device__ inline float k_acos(float x) { return acosf(x); }
__device__ inline float k_atan(float x) { return atanf(x); }
__device__ inline float k_sinh(float x) { return sinhf(x); }
__device__ inline float k_cosh(float x) { return coshf(x); }
__device__ inline float k_tanh(float x) { return tanhf(x); }
__device__ inline float k_asinh(float x) { return asinhf(x); }
__device__ inline float k_acosh(float x) { return acoshf(x); }
__device__ inline float k_atanh(float x) { return atanhf(x); }
__device__ inline float k_erf(float x) { return erff(x); }
__device__ inline float k_floor(float x) { return floorf(x); }
__device__ inline float k_ceil(float x) { return ceilf(x); }
__device__ inline float k_rint(float x) { return rintf(x); }
__device__ inline float k_trunc(float x) { return truncf(x); }
__device__ inline float k_abs(float x) { return fabsf(x); }
__device__ inline float k_pow(float x, float y) { return powf(x, y); }
__device__ inline float k_fmod(float x, float y) { return fmodf(x, y); }
__device__ inline float k_atan2(float x, float y) { return atan2f(x, y); }
__device__ inline double k_exp(double x) { return exp(x); }
__device__ inline double k_log(double x) { return log(x); }
__device__ inline double k_log1p(double x) { return log1p(x); }
__device__ inline double k_expm1(double x) { return expm1(x); }
__device__ inline double k_sqrt(double x) { return sqrt(x); }
__device__ inline double k_rsqrt(double x) { return 1 / sqrt(x); }
__device__ inline double k_sin(double x) { return sin(x); }
__device__ inline double k_cos(double x) { return cos(x); }
__device__ inline double k_tan(double x) { return tan(x); }
__device__ inline double k_asin(double x) { return asin(x); }
__device__ inline double k_acos(double x) { return acos(x); }
__device__ inline double k_atan(double x) { return atan(x); }
__device__ inline double k_sinh(double x) { return sinh(x); }
__device__ inline double k_cosh(double x) { return cosh(x); }
__device__ inline double k_tanh(double x) { return tanh(x); }
__device__ inline double k_asinh(double x) { return asinh(x); }
__device__ inline double k_acosh(double x) { return acosh(x); }
__device__ inline double k_atanh(double x) { return atanh(x); }
__device__ inline double k_erf(double x) { return erf(x); }
__device__ inline double k_floor(double x) { return floor(x); }
__device__ inline double k_ceil(double x) { return ceil(x); }
__device__ inline double k_rint(double x) { return rint(x); }
__device__ inline double k_trunc(double x) { return trunc(x); }
__device__ inline double k_abs(double x) { return fabs(x); }
__device__ inline double k_pow(double x, double y) { return pow(x, y); }
__device__ inline double k_fmod(double x, double y) { return fmod(x, y); }
__device__ inline double k_atan2(double x, double y) { return atan2(x, y); }
template <class T> __device__ inline T k_fmod_floor(T a, T b) {
  T r = k_fmod(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}

// NaN wins.
__device__ inline float k_max(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }
__device__ inline float k_min(float a, float b) { return a != a ? a : b != b ? b : a < b ? a : b; }
__device__ inline double k_max(double a, double b) { return a != a ? a : b != b ? b : a > b ? a : b; }
__device__ inline double k_min(double a, double b) { return a != a ? a : b != b ? b : a < b ? a : b; }
__device__ inline k_s64 k_max(k_s64 a, k_s64 b) { return a > b ? a : b; }
__device__ inline k_s64 k_min(k_s64 a, k_s64 b) { return a < b ? a : b; }
__device__ inline k_u64 k_max(k_u64 a, k_u64 b) { return a > b ? a : b; }
__device__ inline k_u64 k_min(k_u64 a, k_u64 b) { return a < b ? a : b; }
// A literal 0 beside a value.
__device__ inline float k_max(float a, int b) { return k_max(a, (float)b); }
__device__ inline double k_max(double a, int b) { return k_max(a, (double)b); }
__device__ inline k_s64 k_max(k_s64 a, int b) { return a > b ? a : b; }
__device__ inline k_u64 k_max(k_u64 a, int) { return a; }
template <class T> __device__ inline T k_sign(T x) { return x != x ? x : T((x > 0) - (x < 0)); }
__device__ inline k_u64 k_sign(k_u64 x) { return x != 0; }
__device__ inline k_s64 k_abs(k_s64 x) { return x < 0 ? (k_s64)(0 - (k_u64)x) : x; }
__device__ inline k_u64 k_abs(k_u64 x) { return x; }

// Division by zero yields 0.
__device__ inline k_s64 k_idiv(k_s64 a, k_s64 b) { return b == 0 ? 0 : b == -1 ? (k_s64)(0 - (k_u64)a) : a / b; }
__device__ inline k_u64 k_idiv(k_u64 a, k_u64 b) { return b == 0 ? 0 : a / b; }
__device__ inline k_s64 k_irem(k_s64 a, k_s64 b) { return b == 0 || b == -1 ? 0 : a % b; }
__device__ inline k_u64 k_irem(k_u64 a, k_u64 b) { return b == 0 ? 0 : a % b; }
__device__ inline k_s64 k_imod(k_s64 a, k_s64 b) {
  k_s64 r = k_irem(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}
__device__ inline k_u64 k_imod(k_u64 a, k_u64 b) { return k_irem(a, b); }
__device__ inline k_s64 k_ishl(k_s64 a, k_s64 b) { return b < 0 || b > 63 ? 0 : (k_s64)((k_u64)a << b); }
__device__ inline k_u64 k_ishl(k_u64 a, k_u64 b) { return b > 63 ? 0 : a << b; }
__device__ inline k_s64 k_ishr(k_s64 a, k_s64 b) { return b < 0 || b > 63 ? (a < 0 ? -1 : 0) : a >> b; }
__device__ inline k_u64 k_ishr(k_u64 a, k_u64 b) { return b > 63 ? 0 : a >> b; }

// Index arithmetic; divisors are positive.
template <class T, class U> __device__ inline T k_floordiv(T a, U b) {
  T q = a / (T)b;
  return q - (a - q * (T)b < 0);
}
template <class T, class U> __device__ inline T k_mod(T a, U b) { return a - k_floordiv(a, b) * (T)b; }
template <class T, class U> __device__ inline T k_index_max(T a, U b) { return a > (T)b ? a : (T)b; }
template <class T, class U> __device__ inline T k_index_min(T a, U b) { return a < (T)b ? a : (T)b; }
template <class T, class U> __device__ inline T k_index_broadcast(T a, U b) { return a == 1 ? (T)b : a; }

// Storage.
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) k_vector { T v[N]; };
__device__ inline float k_from_f16(unsigned short v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v));
  return f;
}
__device__ inline unsigned short k_to_f16(float v) {
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
  return h;
}
__device__ inline float k_from_bf16(unsigned short v) { return __uint_as_float((unsigned)v << 16); }
__device__ inline unsigned short k_to_bf16(float v) {
  unsigned u = __float_as_uint(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (unsigned short)((u >> 16) | 0x40u);
  return (unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
__device__ inline unsigned short k_to_f16(double v) {
  unsigned short h;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h) : "d"(v));
  return h;
}
// Through an f32 that keeps whether anything was cut off (round to odd), so that there is one rounding.
__device__ inline unsigned short k_to_bf16(double v) {
  float f = __double2float_rz(v);
  if ((double)f != v && v == v) f = __uint_as_float(__float_as_uint(f) | 1u);
  return k_to_bf16(f);
}
__device__ inline float k_round_f16(float v) { return k_from_f16(k_to_f16(v)); }
__device__ inline float k_round_f16(double v) { return k_from_f16(k_to_f16(v)); }
__device__ inline float k_round_bf16(float v) { return k_from_bf16(k_to_bf16(v)); }
__device__ inline float k_round_bf16(double v) { return k_from_bf16(k_to_bf16(v)); }
// Truncation that saturates; NaN gives 0.
template <class F> __device__ inline k_s64 k_to_signed(F v, k_s64 low, k_s64 high) {
  return v != v ? 0 : v <= (F)low ? low : v >= (F)high ? high : (k_s64)v;
}
template <class F> __device__ inline k_u64 k_to_unsigned(F v, k_u64 high) {
  return !(v > 0) ? 0 : v >= (F)high ? high : (k_u64)v;
}

struct k_op_sum { template <class T> __device__ T operator()(T a, T b) const { return a + b; } };
struct k_op_prod { template <class T> __device__ T operator()(T a, T b) const { return a * b; } };
struct k_op_max { template <class T> __device__ T operator()(T a, T b) const { return k_max(a, b); } };
struct k_op_min { template <class T> __device__ T operator()(T a, T b) const { return k_min(a, b); } };
// The values of all threads of the warp, combined; every thread gets the result. All 32 must call.
template <class T, class Op> __device__ inline T k_warp_reduce(T v, Op op) {
  for (int d = 16; d > 0; d >>= 1) v = op(v, __shfl_xor_sync(0xffffffffu, v, d));
  return v;
}
// The values of all threads of the block, combined in an order that depends on the block size alone; every thread
// gets the result. All threads must call.
template <class T, class Op> __device__ inline T k_block_reduce(T v, Op op) {
  __shared__ T parts[32];
  v = k_warp_reduce(v, op);
  if (blockDim.x <= 32) return v;
  int warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  if ((threadIdx.x & 31) == 0) parts[warp] = v;
  __syncthreads();
  v = parts[0];
  for (int w = 1; w < warps; ++w) v = op(v, parts[w]);
  __syncthreads();
  return v;
}
// The values of the threads of one lane in all warps of the block, in the order of the warps; each gets the
// result. All threads must call.
template <class T, class Op> __device__ inline T k_column_reduce(T v, Op op) {
  __shared__ T parts[1024];
  parts[threadIdx.x] = v;
  __syncthreads();
  v = parts[threadIdx.x & 31];
  for (int at = 32 + (threadIdx.x & 31); at < blockDim.x; at += 32) v = op(v, parts[at]);
  __syncthreads();
  return v;
}
)cuda";
}

}  // namespace pelton::codegen
