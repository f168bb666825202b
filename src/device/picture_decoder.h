// SPDX-License-Identifier: Apache-2.0
// JPEG files decoded on a device, or pixels, resampled and written straight into a batch in its memory. A
// Device that can do that is a PictureDevice as well.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace pelton::device {

// How the results along one axis come from the pixels along it: result i is the sum over k < taps of
// weights[i * taps + k] * pixel[first[i] + k]; pixels that lie outside have weight 0.
struct PictureTaps {
  int taps = 0;
  std::vector<int32_t> first;
  std::vector<float> weights;
};

// One picture, and what becomes of it.
struct PictureJob {
  std::span<const uint8_t> file;    // empty: the picture is these, u8 [height, width, channels]
  const uint8_t* pixels = nullptr;  // of the host,
  bool pixels_there = false;        // or in device memory
  uint8_t* keep = nullptr;  // device memory where the pixels are wanted too; null: nowhere but in the result
  int width = 0, height = 0;  // of the stored picture, as its header says
  PictureTaps x, y;           // along the stored picture's axes
  bool swap = false;          // the result's x follows the stored y
  int left = 0, top = 0;      // of the result within the output; around it is `fill`
  std::array<float, 3> fill{};
  bool recolour = false;
  std::array<float, 12> matrix{};  // row-major 3x4 on (r, g, b, 1); on grey pictures the first row's sum acts
  void* out = nullptr;             // device memory
};

// What all outputs of a call are: value = (clamp(result, 0, 255) - mean[c]) * scale[c], or rounded u8.
struct PictureForm {
  int width = 0, height = 0, channels = 3;  // 1 or 3
  DType dtype = DType::f32;                 // f32, f16 or u8
  bool channels_first = true;
  std::array<float, 4> mean{}, scale{1, 1, 1, 1};
};

// One thread at a time; several decoders of one device work side by side.
class PictureDecoder {
 public:
  virtual ~PictureDecoder() = default;
  // Writes the outputs and returns when they are there. taken[i] is 0 where a job was not carried out:
  // damage, or no memory left for it. Of files, only jobs that the device decodes().
  virtual void run(std::span<const PictureJob> jobs, const PictureForm& form, std::span<uint8_t> taken) = 0;
};

class PictureDevice {
 public:
  virtual ~PictureDevice() = default;
  // no_device says what is missing. `files`: jobs with files come too.
  virtual std::unique_ptr<PictureDecoder> make_picture_decoder(bool files) = 0;
  // Whether its decoders take the job's file, as its header tells, with so many channels: a coding that they
  // know, of the job's size. Asked about files with three components coded as YCbCr when `channels` is 3, any
  // grey or YCbCr file when it is 1. Any thread, any number of them at once, so that the threads which decode
  // need not ask; once there is a decoder.
  virtual bool decodes(const PictureJob& job, int channels) const = 0;
};

}  // namespace pelton::device
