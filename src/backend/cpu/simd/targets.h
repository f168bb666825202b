// SPDX-License-Identifier: Apache-2.0
// Which instruction sets a SIMD file is compiled for, and picking one for a Target. Include before
// hwy/foreach_target.h. Each set is one full compilation of the file, so there are three: the static one
// (scalar), AVX2 and AVX-512.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)

#include "device/target.h"

// A pointer to `function` of the namespace compiled for `isa` (device::CpuIsa). Use outside HWY_NAMESPACE, in
// the part guarded by HWY_ONCE.
#define PELTON_SIMD_PICK(isa, function) \
  ((isa) >= device::CpuIsa::avx512      \
       ? PELTON_SIMD_AVX512(function)   \
       : ((isa) >= device::CpuIsa::avx2 ? PELTON_SIMD_AVX2(function) : &HWY_STATIC_DISPATCH(function)))
#if defined(__x86_64__)
#define PELTON_SIMD_AVX512(function) &N_AVX3::function
#define PELTON_SIMD_AVX2(function) &N_AVX2::function
#else
#define PELTON_SIMD_AVX512(function) &HWY_STATIC_DISPATCH(function)
#define PELTON_SIMD_AVX2(function) &HWY_STATIC_DISPATCH(function)
#endif
