// SPDX-License-Identifier: Apache-2.0
// Which form of a batch norm (own/batch_norm.h) is fastest for its sizes.
#pragma once

#include <optional>

#include "backend/cuda/own/batch_norm.h"
#include "backend/cuda/own/host.h"

namespace pelton::backend::cuda {

struct NormForm {
  std::optional<NormCluster> cluster;  // none: three launches, of so many blocks a multiprocessor
  int sum_blocks = 4, apply_blocks = 8;
  int64_t scratch_bytes = 0;
};
// Found by timing where there are several. The problem has no addresses.
NormForm fastest_form(const BatchNorm& problem, bool backward, const device::Target& target);

cudaError_t run_form(const NormForm& form, const BatchNorm& problem, bool backward, cudaStream_t stream);

}  // namespace pelton::backend::cuda
