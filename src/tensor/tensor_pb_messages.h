// SPDX-License-Identifier: Apache-2.0
// Field numbers (pb::TensorProto::raw_data) and message tables, both made from tensor_pb.def.
#pragma once

#include <string_view>
#include <utility>

#include "tensor/proto_wire.h"

namespace pelton::pb {

#define FIELD(message, number, name, ...)  \
  namespace message {                      \
  inline constexpr uint32_t name = number; \
  }
#include "tensor/tensor_pb.def"
#undef FIELD

const wire::MessageSpec& string_entry_proto();
const wire::MessageSpec& tensor_proto();
const wire::MessageSpec& sparse_tensor_proto();
const wire::MessageSpec& sequence_proto();
const wire::MessageSpec& map_proto();
const wire::MessageSpec& optional_proto();

// StringStringEntryProto: key and value.
std::pair<std::string_view, std::string_view> parse_entry(wire::Span message);

}  // namespace pelton::pb
