// SPDX-License-Identifier: Apache-2.0
// base/philox.h on the device. Nothing is contracted to fused multiply-adds, so that the bits agree.
#pragma once

#include "backend/cuda/own/random.h"

namespace pelton::backend::cuda {

struct Words {
  uint32_t v[4];
};

class Philox {
 public:
  __device__ __forceinline__ explicit Philox(const RandomSource& r) {
    const uint64_t seed = (r.key ? r.key[0] : r.seed) ^ r.mix;
    key_[0] = static_cast<uint32_t>(seed);
    key_[1] = static_cast<uint32_t>(seed >> 32);
    node_ = static_cast<uint32_t>(r.node);
    step_ = static_cast<uint32_t>(r.key ? r.key[1] : r.step);
  }
  __device__ __forceinline__ Words block(uint64_t index) const {
    uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32), c2 = node_,
             c3 = step_;
    uint32_t k0 = key_[0], k1 = key_[1];
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      const uint32_t high_a = __umulhi(0xD2511F53u, c0), low_a = 0xD2511F53u * c0;
      const uint32_t high_b = __umulhi(0xCD9E8D57u, c2), low_b = 0xCD9E8D57u * c2;
      c0 = high_b ^ c1 ^ k0;
      c1 = low_b;
      c2 = high_a ^ c3 ^ k1;
      c3 = low_a;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
  }

 private:
  uint32_t key_[2], node_, step_;
};

__device__ __forceinline__ float uniform_from_bits(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

}  // namespace pelton::backend::cuda
