// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor_pb_messages.h"

#include <iterator>

namespace pelton::pb {
namespace {

constexpr wire::FieldSpec kFields[] = {
#define FIELD(message, number, name, kind, repeated, type) \
  {#message, number, #name, wire::Kind::kind, repeated, #type},
#include "tensor/tensor_pb.def"
#undef FIELD
};
wire::MessageSpec find(std::string_view name) {
  return wire::find_message(kFields, std::size(kFields), name);
}

}  // namespace

const wire::MessageSpec& string_entry_proto() {
  static const wire::MessageSpec spec = find("StringStringEntryProto");
  return spec;
}
const wire::MessageSpec& tensor_proto() {
  static const wire::MessageSpec spec = find("TensorProto");
  return spec;
}
const wire::MessageSpec& sparse_tensor_proto() {
  static const wire::MessageSpec spec = find("SparseTensorProto");
  return spec;
}
const wire::MessageSpec& sequence_proto() {
  static const wire::MessageSpec spec = find("SequenceProto");
  return spec;
}
const wire::MessageSpec& map_proto() {
  static const wire::MessageSpec spec = find("MapProto");
  return spec;
}
const wire::MessageSpec& optional_proto() {
  static const wire::MessageSpec spec = find("OptionalProto");
  return spec;
}

std::pair<std::string_view, std::string_view> parse_entry(wire::Span message) {
  std::pair<std::string_view, std::string_view> entry;
  wire::Reader r(message, string_entry_proto());
  while (uint32_t field = r.next())
    (field == StringStringEntryProto::key ? entry.first : entry.second) = r.text();
  return entry;
}

}  // namespace pelton::pb
