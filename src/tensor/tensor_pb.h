// SPDX-License-Identifier: Apache-2.0
// Tensors as ONNX stores them: TensorProto inside a model, and TensorProto, SequenceProto, OptionalProto and
// MapProto as .pb files. Views point into the file; a Tensor borrows its bytes where they can be used in
// place.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/proto_wire.h"
#include "tensor/tensor.h"

namespace pelton {

// TensorProto.DataType. Complex numbers are read as real tensors with a last dimension of 2.
std::optional<DType> dtype_from_onnx(int64_t data_type);
int onnx_from_dtype(DType t);
bool onnx_is_complex(int64_t data_type);
std::string onnx_type_name(int64_t data_type);  // "float32", "int4", "type 99"

struct TensorView {
  std::string_view name;
  int64_t data_type = 0;
  std::vector<int64_t> dims;
  bool has_raw = false;
  std::string_view raw;                                 // raw_data
  std::vector<std::string_view> floats, doubles, ints;  // encoded elements of the typed fields, in pieces
  std::vector<std::string_view> strings;
  bool external = false;
  std::vector<std::pair<std::string_view, std::string_view>> external_data;
  size_t offset = 0;  // of the message in its file
};

// Gives the bytes that an external tensor names; owner keeps them alive.
struct ExternalBytes {
  std::string_view bytes;
  std::shared_ptr<const void> owner;
};
class ExternalSource {
 public:
  virtual ~ExternalSource() = default;
  virtual ExternalBytes open(const TensorView& tensor) = 0;
};

TensorView parse_tensor_proto(wire::Span message);
// Borrows raw bytes (owner keeps the file alive) where they are aligned for their type or take more than 1
// MiB; copies or decodes everything else. Without a source, external data is refused. Errors name the tensor.
Tensor to_tensor(const TensorView& view, std::shared_ptr<const void> owner,
                 ExternalSource* external = nullptr);
// SparseTensorProto (COO, linear or per-axis indices) as a dense tensor.
Tensor sparse_to_tensor(wire::Span message, std::shared_ptr<const void> owner,
                        std::string_view* name = nullptr);

// A value of a .pb file. A map holds its keys (one-dimensional) and its values as items.
struct PbValue {
  enum class Kind { tensor, sequence, optional, map } kind = Kind::tensor;
  std::string name;
  Tensor tensor;               // tensor; keys of a map
  std::vector<PbValue> items;  // sequence, map: elements; optional: none or one
};
PbValue parse_pb_value(std::string_view file, PbValue::Kind kind, std::shared_ptr<const void> owner);
Tensor load_pb_tensor(const std::string& path);

// TensorProto with raw_data (strings in string_data).
std::string write_tensor_proto(const Tensor& tensor, std::string_view name);
void save_pb_tensor(const std::string& path, const Tensor& tensor, std::string_view name);

}  // namespace pelton
