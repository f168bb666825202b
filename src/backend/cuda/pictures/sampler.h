// SPDX-License-Identifier: Apache-2.0
// The jobs of pictures whose pixels are known, as one launch of the resampling kernel.
#pragma once

#include <span>
#include <vector>

#include "backend/cuda/own/picture_sample.h"
#include "backend/cuda/pictures/growing.h"
#include "device/picture_decoder.h"

namespace pelton::backend::cuda {

class PictureSampler {
 public:
  // Lays out what the kernel reads: `list` names the jobs, pixels[k] in the GPU's memory is what list[k]
  // reads. False where no memory is left. Not while a launch is under way.
  bool stage(std::span<const device::PictureJob> jobs, const std::vector<size_t>& list,
             const std::vector<const uint8_t*>& pixels);
  void launch(const device::PictureForm& form, cudaStream_t stream);  // what was staged

 private:
  GrowingPinned tables_;
  GrowingMemory device_tables_;
  uint8_t *on_host_ = nullptr, *on_device_ = nullptr;
  size_t bytes_ = 0;
  int count_ = 0;
};

}  // namespace pelton::backend::cuda
