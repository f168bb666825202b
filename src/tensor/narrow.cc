// SPDX-License-Identifier: Apache-2.0
#include "tensor/narrow.h"

#include <atomic>
#include <cmath>

#include "base/thread_pool.h"
#include "tensor/float_types.h"

namespace pelton {
namespace {

constexpr int64_t kGrain = 1 << 18;

}  // namespace

Tensor narrowed(const Tensor& f32, DType to) {
  PELTON_CHECK(to == DType::f16 || to == DType::bf16, name(to));
  Tensor out(to, f32.dims());
  const float* x = f32.as<float>();
  auto* y = static_cast<uint16_t*>(out.mutable_data());
  parallel_for(0, f32.count(), kGrain, [&](int64_t begin, int64_t end) {
    if (to == DType::f16)
      for (int64_t i = begin; i < end; ++i) y[i] = f16_from_float(x[i]);
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
