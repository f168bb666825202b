// SPDX-License-Identifier: Apache-2.0
// Which form of a batch norm (own/batch_norm.h) is fastest for its sizes.
#pragma once

#include <optional>

#include "backend/cuda/own/batch_norm.h"
#include "backend/cuda/own/host.h"

namespace pelton::backend::cuda {

struct NormForm {
  std::optional<NormCluster> cluster;  // none: three launches
  int64_t scratch_bytes = 0;
};
// Found by timing where there are several. The problem has no addresses.
NormForm fastest_form(const BatchNorm& problem, bool backward, const device::Target& target);

inline cudaError_t run_form(const NormForm& form, const BatchNorm& problem, bool backward,
                            cudaStream_t stream) {
  if (backward)
    return form.cluster ? batch_norm_backward(problem, *form.cluster, stream)
                        : batch_norm_backward(problem, stream);
  return form.cluster ? batch_norm_train(problem, *form.cluster, stream) : batch_norm_train(problem, stream);
}

}  // namespace pelton::backend::cuda
