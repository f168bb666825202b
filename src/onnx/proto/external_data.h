// SPDX-License-Identifier: Apache-2.0
// Tensor data kept beside a model: the file must lie in the model's folder (no absolute path, no "..", no
// link that leads out), and offset and length must lie in the file. Each file is mapped once.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/file.h"
#include "tensor/tensor_pb.h"

namespace pelton::onnx {

class ExternalFiles : public ExternalSource {
 public:
  explicit ExternalFiles(std::string folder) : folder_(std::move(folder)) {}
  ExternalBytes open(const TensorView& tensor) override;

 private:
  std::shared_ptr<const MappedFile> map(std::string_view location);

  std::string folder_;
  std::map<std::string, std::shared_ptr<const MappedFile>, std::less<>> files_;
};

}  // namespace pelton::onnx
