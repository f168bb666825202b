// SPDX-License-Identifier: Apache-2.0
// Pictures of different sizes resampled into the equal slots of a batch: crop, resize, flip, quarter turn,
// pad, colour change, mean and scale in one pass, by tables of taps along both axes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pelton::backend::cuda {

struct SampleTaps {
  const int32_t* first;  // [n]
  const float* weights;  // [n, taps]
  int n, taps;
};
// As device::PictureJob; all pointers in device memory.
struct SamplePicture {
  const uint8_t* pixels;  // [height, width, channels]
  int width, height;
  SampleTaps x, y;
  int left, top;
  int swap, recolour;
  float fill[3];
  float matrix[12];
  void* out;
};
enum class SampleType : uint8_t { f32, f16, u8 };
struct SampleForm {
  int width, height, channels;
  SampleType type;
  bool channels_first;
  float mean[3], scale[3];
};
// `pictures`: `count` of them, in device memory.
cudaError_t sample_pictures(const SamplePicture* pictures, int count, const SampleForm& form,
                            cudaStream_t stream);

}  // namespace pelton::backend::cuda
