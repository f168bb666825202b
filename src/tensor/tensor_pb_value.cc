// SPDX-License-Identifier: Apache-2.0
// Values of .pb files: tensors, sequences, optionals and maps.
#include <algorithm>

#include "base/file.h"
#include "tensor/tensor_pb.h"
#include "tensor/tensor_pb_messages.h"

namespace pelton {

namespace {

using wire::Reader;
using wire::Span;

PbValue parse_value(Span message, PbValue::Kind kind, const std::shared_ptr<const void>& owner);

PbValue tensor_value(Span message, const std::shared_ptr<const void>& owner) {
  TensorView view = parse_tensor_proto(message);
  return {PbValue::Kind::tensor, std::string(view.name), to_tensor(view, owner), {}};
}

PbValue sparse_value(Span message, const std::shared_ptr<const void>& owner) {
  PbValue v;
  v.tensor = sparse_to_tensor(message, owner);
  return v;
}

PbValue sequence_value(Span message, const std::shared_ptr<const void>& owner) {
  PbValue out{PbValue::Kind::sequence, {}, {}, {}};
  Reader r(message, pb::sequence_proto());
  while (uint32_t field = r.next()) switch (field) {
      case pb::SequenceProto::name:
        out.name = r.text();
        break;
      case pb::SequenceProto::tensor_values:
        out.items.push_back(tensor_value(r.message(), owner));
        break;
      case pb::SequenceProto::sparse_tensor_values:
        out.items.push_back(sparse_value(r.message(), owner));
        break;
      case pb::SequenceProto::sequence_values:
        out.items.push_back(parse_value(r.message(), PbValue::Kind::sequence, owner));
        break;
      case pb::SequenceProto::map_values:
        out.items.push_back(parse_value(r.message(), PbValue::Kind::map, owner));
        break;
      case pb::SequenceProto::optional_values:
        out.items.push_back(parse_value(r.message(), PbValue::Kind::optional, owner));
        break;
    }
  return out;
}

PbValue optional_value(Span message, const std::shared_ptr<const void>& owner) {
  PbValue out{PbValue::Kind::optional, {}, {}, {}};
  Reader r(message, pb::optional_proto());
  while (uint32_t field = r.next()) switch (field) {
      case pb::OptionalProto::name:
        out.name = r.text();
        break;
      case pb::OptionalProto::tensor_value:
        out.items = {tensor_value(r.message(), owner)};
        break;
      case pb::OptionalProto::sparse_tensor_value:
        out.items = {sparse_value(r.message(), owner)};
        break;
      case pb::OptionalProto::sequence_value:
        out.items = {parse_value(r.message(), PbValue::Kind::sequence, owner)};
        break;
      case pb::OptionalProto::map_value:
        out.items = {parse_value(r.message(), PbValue::Kind::map, owner)};
        break;
      case pb::OptionalProto::optional_value:
        out.items = {parse_value(r.message(), PbValue::Kind::optional, owner)};
        break;
    }
  return out;
}

PbValue map_value(Span message, const std::shared_ptr<const void>& owner) {
  PbValue out{PbValue::Kind::map, {}, {}, {}};
  std::vector<int64_t> keys;
  std::vector<std::string> string_keys;
  Reader r(message, pb::map_proto());
  while (uint32_t field = r.next()) switch (field) {
      case pb::MapProto::name:
        out.name = r.text();
        break;
      case pb::MapProto::keys:
        r.append_to(keys);
        break;
      case pb::MapProto::string_keys:
        string_keys.emplace_back(r.text());
        break;
      case pb::MapProto::values:
        out.items = sequence_value(r.message(), owner).items;
        break;
    }
  size_t count = std::max(keys.size(), string_keys.size());
  if (count != out.items.size() || (!keys.empty() && !string_keys.empty()))
    fail(ErrorCode::bad_format, cat("a map of ", count, " keys and ", out.items.size(), " values"),
         cat("MapProto at byte ", message.offset()));
  auto n = static_cast<int64_t>(count);
  out.tensor =
      keys.empty() ? Tensor::of_strings({n}, std::move(string_keys)) : Tensor::from<int64_t>({n}, keys);
  return out;
}

PbValue parse_value(Span message, PbValue::Kind kind, const std::shared_ptr<const void>& owner) {
  switch (kind) {
    case PbValue::Kind::tensor:
      return tensor_value(message, owner);
    case PbValue::Kind::sequence:
      return sequence_value(message, owner);
    case PbValue::Kind::optional:
      return optional_value(message, owner);
    case PbValue::Kind::map:
      return map_value(message, owner);
  }
  return {};
}

}  // namespace

PbValue parse_pb_value(std::string_view file, PbValue::Kind kind, std::shared_ptr<const void> owner) {
  return parse_value(wire::whole(file), kind, owner);
}

Tensor load_pb_tensor(const std::string& path) {
  return with_place(path, [&] {
    auto bytes = std::make_shared<std::string>(read_file(path));
    return parse_pb_value(*bytes, PbValue::Kind::tensor, bytes).tensor;
  });
}

void save_pb_tensor(const std::string& path, const Tensor& tensor, std::string_view name) {
  write_file(path, write_tensor_proto(tensor, name));
}

}  // namespace pelton
