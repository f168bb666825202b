// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda.h"
#include "backend/cuda/fft.h"
#include "backend/cuda/implementations.h"

namespace pelton::backend {

// Best first within an op; an implementation that refuses leaves the node to the next.
void register_cuda(Registry& registry) {
  registry.add_device(device::Kind::cuda, cuda::open_device);
  cuda::add_conv(registry);
  cuda::add_conv_backward(registry);
  cuda::add_pool(registry);
  cuda::add_squeeze_excite(registry);
  cuda::add_excite(registry);
  cuda::add_attention(registry);
  cuda::add_attention_backward(registry);
  cuda::add_norm(registry);
  cuda::add_batch_norm(registry);
  cuda::add_row_norm_backward(registry);
  cuda::add_loss(registry);
  cuda::add_column_sum(registry);
  cuda::add_ranking(registry);
  cuda::add_resample(registry);
  cuda::add_fft(registry);
  cuda::add_product_gradient(registry);
  cuda::add_contraction(registry);
  cuda::add_integer(registry);
  cuda::add_recurrent(registry);
  cuda::add_control(registry);
  cuda::add_gather(registry);
  cuda::add_index(registry);
  cuda::add_random(registry);
  cuda::add_segments(registry);
  cuda::add_generated(registry);
}

}  // namespace pelton::backend
