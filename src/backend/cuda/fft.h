// SPDX-License-Identifier: Apache-2.0
// Fourier transforms on cuFFT.
#pragma once

#include "backend/kernel.h"

namespace pelton::backend::cuda {

void add_fft(Registry& registry);

}  // namespace pelton::backend::cuda
