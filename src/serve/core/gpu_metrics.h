// SPDX-License-Identifier: Apache-2.0
// The nv_gpu_* families: state of the machine's NVIDIA GPUs, read through the management library, which is
// opened when they are first asked for.
#pragma once

#include <string>

namespace pelton::serve {

// Prometheus text; empty where there is no GPU or no library.
std::string gpu_metrics_text();

}  // namespace pelton::serve
