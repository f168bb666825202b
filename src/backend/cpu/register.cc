// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/register.h"

#include "backend/cpu/implementations.h"
#include "backend/cpu/move/implementations.h"
#include "backend/cpu/own/implementations.h"

namespace pelton::backend {

void register_cpu(Registry& registry) {
#if PELTON_HAVE_HWY
  cpu::add_winograd(registry);
  cpu::add_grouped_conv(registry);
#if PELTON_HAVE_ONEDNN
  cpu::add_onednn_conv(registry);
  cpu::add_onednn_matmul(registry);
  cpu::add_onednn_pool(registry);
  cpu::add_onednn_conv_backward(registry);
#endif
  cpu::add_byte_contraction(registry);
  cpu::add_product(registry);
  cpu::add_batch_norm(registry);
  cpu::add_tail_norm_backward(registry);
  cpu::add_pool_backward(registry);
  cpu::add_dropout(registry);
  cpu::add_column_reduce(registry);
  cpu::add_channelwise(registry);
  cpu::add_row_norm(registry);
  cpu::add_dynamic_quantize(registry);
  cpu::add_tile_programs(registry);
  cpu::add_own_contraction(registry);
  cpu::add_attention(registry);
  cpu::add_recurrent(registry);
  cpu::add_resample(registry);
  cpu::add_ranking(registry);
  cpu::add_body(registry);
  cpu::add_picture(registry);
  cpu::add_max_pool(registry);
  cpu::add_fft(registry);
#endif
  cpu::add_movement(registry);
  cpu::add_gather(registry);
  cpu::add_scatter(registry);
  cpu::add_fill(registry);
  cpu::add_scatter_any(registry);
  cpu::add_generate(registry);
}

}  // namespace pelton::backend
