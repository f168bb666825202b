// SPDX-License-Identifier: Apache-2.0
// The input of a plan that takes pictures: image files or raw pixels in, the model's tensor out.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/executable.h"
#include "runtime/preprocess.h"

namespace pelton::runtime {

// Runs a pipeline's evaluation form on image files, with the very code that makes training samples; whoever
// knows the decoders implements it. Any thread.
class PictureReader {
 public:
  virtual ~PictureReader() = default;
  virtual Tensor read(std::string_view file) const = 0;  // one sample: the input without its first axis
};
using PictureReaderMaker = std::function<std::unique_ptr<const PictureReader>(const Preprocess&)>;

class PictureInput {
 public:
  // `registry` must outlive the object.
  PictureInput(std::shared_ptr<const Preprocess> preprocess, const backend::Registry& registry,
               const device::Target& target, const PictureReaderMaker& reader);

  const std::string& name() const { return preprocess_->input; }
  DType dtype() const;   // of the finished tensor
  int channels() const;  // of pixels

  // u8 [H, W, C], or [N, H, W, C] for N pictures of one size, through the compiled tensor part.
  Tensor from_pixels(const Tensor& pixels) const;
  // Files of any sizes, decoded on all threads. Errors name the picture by its place.
  Tensor from_files(const std::vector<std::string_view>& files) const;

 private:
  std::shared_ptr<const Preprocess> preprocess_;
  std::shared_ptr<const Executable> tensor_part_;
  std::unique_ptr<const PictureReader> reader_;
};

}  // namespace pelton::runtime
