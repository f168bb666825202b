// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda.h"
#include "backend/cuda/implementations.h"

namespace pelton::backend {

// Best first within an op; an implementation that refuses leaves the node to the next.
void register_cuda(Registry& registry) {
  cuda::add_conv(registry);
  cuda::add_pool(registry);
  cuda::add_squeeze_excite(registry);
  cuda::add_attention(registry);
  registry.add_device(device::Kind::cuda, cuda::open_device);
  cuda::add_contraction(registry);
  cuda::add_gather(registry);
  cuda::add_generated(registry);
}

}  // namespace pelton::backend
