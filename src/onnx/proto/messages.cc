// SPDX-License-Identifier: Apache-2.0
#include "onnx/proto/messages.h"

#include <iterator>

namespace pelton::pb {
namespace {

constexpr wire::FieldSpec kFields[] = {
#define FIELD(message, number, name, kind, repeated, type) \
  {#message, number, #name, wire::Kind::kind, repeated, #type},
#define NESTED(outer, message, number, name, kind, repeated, type) \
  {#outer "." #message, number, #name, wire::Kind::kind, repeated, #type},
#include "onnx/proto/onnx.def"
#undef FIELD
#undef NESTED
};

}  // namespace

wire::MessageSpec onnx_message(std::string_view name) {
  return wire::find_message(kFields, std::size(kFields), name);
}

}  // namespace pelton::pb
