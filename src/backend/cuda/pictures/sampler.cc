// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/pictures/sampler.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/aligned.h"
#include "backend/cuda/handles.h"

namespace pelton::backend::cuda {
namespace {

SampleForm form_of(const device::PictureForm& f) {
  SampleForm out{};
  out.width = f.width;
  out.height = f.height;
  out.channels = f.channels;
  out.type = f.dtype == DType::f32   ? SampleType::f32
             : f.dtype == DType::f16 ? SampleType::f16
                                     : SampleType::u8;
  out.channels_first = f.channels_first;
  std::copy_n(f.mean.begin(), 3, out.mean);
  std::copy_n(f.scale.begin(), 3, out.scale);
  return out;
}

}  // namespace

// In pinned memory and by addresses in the GPU's: the pictures, then their tables of taps.
bool PictureSampler::stage(std::span<const device::PictureJob> jobs, const std::vector<size_t>& list,
                           const std::vector<const uint8_t*>& pixels) {
  size_t bytes = aligned(list.size() * sizeof(SamplePicture));
  for (const size_t i : list)
    for (const device::PictureTaps* t : {&jobs[i].x, &jobs[i].y})
      bytes += 4 * (t->first.size() + t->weights.size());
  uint8_t* const host = on_host_ = tables_.need(bytes);
  on_device_ = device_tables_.need(bytes);
  if (!host || !on_device_) return false;
  bytes_ = bytes;
  size_t at = aligned(list.size() * sizeof(SamplePicture));
  auto place = [&](const auto& values) {
    const size_t begin = at, size = values.size() * sizeof(values[0]);
    std::memcpy(host + begin, values.data(), size);
    at += size;
    return on_device_ + begin;
  };
  auto taps = [&](const device::PictureTaps& t) {
    SampleTaps out{};
    out.first = reinterpret_cast<const int32_t*>(place(t.first));
    out.weights = reinterpret_cast<const float*>(place(t.weights));
    out.n = static_cast<int>(t.first.size());
    out.taps = t.taps;
    return out;
  };
  for (size_t k = 0; k < list.size(); ++k) {
    const device::PictureJob& job = jobs[list[k]];
    SamplePicture p{};
    p.pixels = pixels[k];
    p.width = job.width;
    p.height = job.height;
    p.x = taps(job.x);
    p.y = taps(job.y);
    p.left = job.left;
    p.top = job.top;
    p.swap = job.swap;
    p.recolour = job.recolour;
    std::ranges::copy(job.fill, p.fill);
    std::ranges::copy(job.matrix, p.matrix);
    p.out = job.out;
    std::memcpy(host + k * sizeof(p), &p, sizeof(p));
  }
  count_ = static_cast<int>(list.size());
  return true;
}

void PictureSampler::launch(const device::PictureForm& form, cudaStream_t stream) {
  PELTON_CUDA(cudaMemcpyAsync(on_device_, on_host_, bytes_, cudaMemcpyHostToDevice, stream));
  PELTON_CUDA(
      sample_pictures(reinterpret_cast<const SamplePicture*>(on_device_), count_, form_of(form), stream));
}

}  // namespace pelton::backend::cuda
