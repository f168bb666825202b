// SPDX-License-Identifier: Apache-2.0
// Field numbers (pb::NodeProto::op_type) and message tables of an ONNX model, both made from onnx.def.
#pragma once

#include "tensor/tensor_pb_messages.h"

namespace pelton::pb {

#define FIELD(message, number, name, ...)  \
  namespace message {                      \
  inline constexpr uint32_t name = number; \
  }
#define NESTED(outer, message, number, name, ...) \
  namespace outer##_##message {                   \
    inline constexpr uint32_t name = number;      \
  }
#include "onnx/proto/onnx.def"
#undef FIELD
#undef NESTED

// The table of "NodeProto", "TypeProto.Tensor" and so on.
wire::MessageSpec onnx_message(std::string_view name);

}  // namespace pelton::pb
