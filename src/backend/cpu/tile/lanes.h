// SPDX-License-Identifier: Apache-2.0
// Between memory of any dtype and the lanes a tile program computes in.
#pragma once

#include <cstdint>

#include "backend/cpu/tile/step.h"

namespace pelton::backend::cpu {

Lane lane_of(DType dtype);
bool has_lane(DType dtype);  // computable: not a storage-only or text type
// The bytes of the dtype are the lane.
bool is_direct(DType dtype);

// n elements from `from` (element stride `stride`, in elements) to lanes, and back.
using LoadFunction = void (*)(const void* from, int64_t stride, void* lanes, int64_t n);
using StoreFunction = void (*)(const void* lanes, void* to, int64_t stride, int64_t n);
LoadFunction load_function(DType dtype, device::CpuIsa isa);
StoreFunction store_function(DType dtype, device::CpuIsa isa);
// Integers of 8 and 16 bits as f32, and whole numbers in their range back; null for other types.
LoadFunction load_whole(DType dtype, device::CpuIsa isa);
StoreFunction store_whole(DType dtype, device::CpuIsa isa);

}  // namespace pelton::backend::cpu
