// SPDX-License-Identifier: Apache-2.0
// An ONNX model as views of its file: names are slices of the mapped bytes, tensor data stays where it is.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tensor/tensor_pb.h"

namespace pelton::onnx {

struct DimView {
  std::optional<int64_t> value;
  std::string_view param;  // empty with no value: unknown
};

struct TypeView {
  enum class Kind { none, tensor, sparse_tensor, sequence, optional, map, opaque } kind = Kind::none;
  int64_t elem_type = 0;  // tensors; key type of a map
  bool has_shape = false;
  std::vector<DimView> dims;
  std::shared_ptr<const TypeView> element;  // sequence, optional; value of a map
};

struct ValueInfoView {
  std::string_view name;
  TypeView type;
};

struct GraphView;

struct AttributeView {
  enum class Type {
    undefined = 0,
    f = 1,
    i = 2,
    s = 3,
    t = 4,
    g = 5,
    floats = 6,
    ints = 7,
    strings = 8,
    tensors = 9,
    graphs = 10,
    sparse_tensor = 11,
    sparse_tensors = 12,
    tp = 13,
    type_protos = 14,
  };
  std::string_view name, ref_attr_name;
  Type type = Type::undefined;
  float f = 0;
  int64_t i = 0;
  std::string_view s;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string_view> strings;
  std::vector<TensorView> tensors;                       // t or tensors
  std::vector<std::shared_ptr<const GraphView>> graphs;  // g or graphs
  std::vector<wire::Span> sparse_tensors;                // sparse_tensor or sparse_tensors
  std::vector<TypeView> types;                           // tp or type_protos
};

struct NodeView {
  std::string_view name, op_type, domain, overload;
  std::vector<std::string_view> inputs, outputs;
  std::vector<AttributeView> attributes;
  size_t offset = 0;  // of the message in its file
};

struct GraphView {
  std::string_view name;
  std::vector<NodeView> nodes;
  std::vector<TensorView> initializers;
  std::vector<wire::Span> sparse_initializers;
  std::vector<ValueInfoView> inputs, outputs, value_infos;
};

using OpsetMap = std::map<std::string_view, int64_t>;  // domain -> version; "ai.onnx" is stored as ""

struct FunctionView {
  std::string_view name, domain, overload;
  std::vector<std::string_view> inputs, outputs, attributes;
  std::vector<AttributeView> defaults;
  std::vector<NodeView> nodes;
  OpsetMap opsets;
};

struct ModelView {
  int64_t ir_version = 0, model_version = 0;
  std::string_view producer_name, producer_version, domain, doc_string;
  OpsetMap opsets;
  GraphView graph;
  std::vector<FunctionView> functions;
  std::vector<std::pair<std::string_view, std::string_view>> metadata;
  bool has_training_info = false;
};

// bad_format names the field and byte that are wrong; a Git LFS pointer, text and empty files are told apart.
ModelView parse_model(std::string_view file);

}  // namespace pelton::onnx
