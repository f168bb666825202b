// SPDX-License-Identifier: Apache-2.0
#include "tensor/narrow.h"

#include <immintrin.h>

#include <atomic>
#include <cmath>

#include "base/thread_pool.h"
#include "tensor/float_types.h"

namespace pelton {
namespace {

constexpr int64_t kGrain = 1 << 18;

void to_f16(const float* x, uint16_t* y, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) y[i] = f16_from_float(x[i]);
}

// The same bits by the processor's own conversion, which differs in what is left of a NaN.
__attribute__((target("avx,f16c"))) void to_f16_by_eight(const float* x, uint16_t* y, int64_t begin,
                                                         int64_t end) {
  constexpr int64_t kLanes = 8;
  for (; end - begin >= kLanes; begin += kLanes) {
    const __m256 v = _mm256_loadu_ps(x + begin);
    if (_mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0)
      to_f16(x, y, begin, begin + kLanes);
    else
      _mm_storeu_si128(reinterpret_cast<__m128i*>(y + begin),
                       _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  to_f16(x, y, begin, end);
}

}  // namespace

Tensor narrowed(const Tensor& f32, DType to) {
  PELTON_CHECK(to == DType::f16 || to == DType::bf16, name(to));
  Tensor out(to, f32.dims());
  const float* x = f32.as<float>();
  auto* y = static_cast<uint16_t*>(out.mutable_data());
  // Every processor with AVX2 converts f16.
  static const bool by_eight = __builtin_cpu_supports("avx2");
  parallel_for(0, f32.count(), kGrain, [&](int64_t begin, int64_t end) {
    if (to == DType::f16)
      (by_eight ? to_f16_by_eight : to_f16)(x, y, begin, end);
    else
      for (int64_t i = begin; i < end; ++i) y[i] = bf16_from_float(x[i]);
  });
  return out;
}

bool fits_in(const Tensor& f32, DType to) {
  // The first number that rounds to infinity: half a unit above the largest.
  const float out_of_range = to == DType::f16 ? 65520.0f : std::bit_cast<float>(0x7f7f8000u);
  const float* x = f32.as<float>();
  std::atomic<bool> fits{true};
  parallel_for(0, f32.count(), kGrain, [&](int64_t begin, int64_t end) {
    bool inside = true;
    for (int64_t i = begin; i < end; ++i) {
      const float magnitude = std::fabs(x[i]);
      inside &= !(magnitude >= out_of_range) | (magnitude == INFINITY);
    }
    if (!inside) fits = false;
  });
  return fits;
}

}  // namespace pelton
