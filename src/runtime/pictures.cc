// SPDX-License-Identifier: Apache-2.0
#include "runtime/pictures.h"

#include <cstring>

#include "base/thread_pool.h"

namespace pelton::runtime {

PictureInput::PictureInput(std::shared_ptr<const Preprocess> preprocess, const backend::Registry& registry,
                           const device::Target& target, const PictureReaderMaker& reader)
    : preprocess_(std::move(preprocess)) {
  const ir::Graph& g = preprocess_->plan->graph;
  const bool fits = g.inputs.size() == 1 && g.outputs.size() == 1 && g.type(g.inputs[0]).is_tensor() &&
                    g.type(g.inputs[0]).dtype == DType::u8 && g.type(g.inputs[0]).rank() == 4 &&
                    g.type(g.inputs[0]).shape[3].is_const() && g.type(g.outputs[0]).is_tensor() &&
                    g.type(g.outputs[0]).rank() == 4;
  if (!fits)
    fail(ErrorCode::bad_format, "the tensor part does not take pictures u8 [N, H, W, C]",
         "section 'preprocess.ir'");
  tensor_part_ = Executable::create(preprocess_->plan, registry, target);
  reader_ = reader(*preprocess_);
}

DType PictureInput::dtype() const {
  const ir::Graph& g = tensor_part_->graph();
  return g.type(g.outputs[0]).dtype;
}

int PictureInput::channels() const {
  const ir::Graph& g = tensor_part_->graph();
  return static_cast<int>(g.type(g.inputs[0]).shape[3].value());
}

Tensor PictureInput::from_pixels(const Tensor& pixels) const {
  Dims d = pixels.dims();
  if (d.size() == 3) d.insert(d.begin(), 1);
  if (pixels.dtype() != DType::u8 || d.size() != 4 || d[3] != channels())
    fail(ErrorCode::bad_shape,
         cat("pictures are u8 [N, H, W, ", channels(), "] or [H, W, ", channels(), "], not ", pixels),
         cat("input '", name(), "'"));
  return tensor_part_->run({pixels.reshaped(d)}).at(0).tensor;
}

Tensor PictureInput::from_files(const std::vector<std::string_view>& files) const {
  const std::string where = cat("input '", name(), "'");
  if (files.empty()) fail(ErrorCode::bad_shape, "no picture is given", where);
  const auto n = static_cast<int64_t>(files.size());
  auto read = [&](int64_t i) {
    return with_place(cat(where, ", picture ", i),
                      [&] { return reader_->read(files[static_cast<size_t>(i)]); });
  };
  const Tensor first = read(0);
  Dims dims = first.dims();
  dims.insert(dims.begin(), n);
  Tensor out(first.dtype(), dims);
  auto* const to = static_cast<std::byte*>(out.mutable_data());
  const auto bytes = static_cast<size_t>(first.bytes());
  std::memcpy(to, first.data(), bytes);
  parallel_for(1, n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Tensor t = read(i);
      if (t.dims() != first.dims() || t.dtype() != first.dtype())
        fail(ErrorCode::bad_shape, cat("the pictures of a batch become ", first, " and ", t), where,
             "end the pipeline with a crop or resize to a fixed size");
      std::memcpy(to + static_cast<size_t>(i) * bytes, t.data(), bytes);
    }
  });
  return out;
}

}  // namespace pelton::runtime
