// SPDX-License-Identifier: Apache-2.0
// What the files that make views of a model share: message tables, the count of messages, and each other's
// functions.
#pragma once

#include "onnx/proto/messages.h"
#include "onnx/proto/model_view.h"

namespace pelton::onnx {

// Tables looked up once.
struct Specs {
  wire::MessageSpec model = pb::onnx_message("ModelProto"), opset = pb::onnx_message("OperatorSetIdProto"),
                    graph = pb::onnx_message("GraphProto"), value_info = pb::onnx_message("ValueInfoProto"),
                    node = pb::onnx_message("NodeProto"), attribute = pb::onnx_message("AttributeProto"),
                    function = pb::onnx_message("FunctionProto"), type = pb::onnx_message("TypeProto"),
                    tensor_type = pb::onnx_message("TypeProto.Tensor"),
                    sequence = pb::onnx_message("TypeProto.Sequence"),
                    optional = pb::onnx_message("TypeProto.Optional"),
                    map = pb::onnx_message("TypeProto.Map"), shape = pb::onnx_message("TensorShapeProto"),
                    dim = pb::onnx_message("TensorShapeProto.Dimension");
};
const Specs& specs();

// A view takes far more memory than the two bytes of an empty message, so a small hostile file could ask for
// much: each message that a view is made of goes through counted(), a limit error when there are too many.
inline constexpr size_t kMaxMessages = 5'000'000;
void start_count();  // on this thread, for one file
wire::Span counted(wire::Span message);

TypeView parse_type(wire::Span message);
ValueInfoView parse_value_info(wire::Span message);
AttributeView parse_attribute(wire::Span message);
GraphView parse_graph(wire::Span message);

}  // namespace pelton::onnx
