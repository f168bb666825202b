// SPDX-License-Identifier: Apache-2.0
#include "cli/pb_value.h"

#include <memory>

#include "base/file.h"
#include "tensor/tensor_pb.h"

namespace pelton::cli {
namespace {

using ir::HostValue;
using ir::TypeKind;

HostValue convert(const PbValue& v) {
  switch (v.kind) {
    case PbValue::Kind::tensor:
      return v.tensor;
    case PbValue::Kind::map:
      fail(ErrorCode::bad_type, "a map cannot be an input or output");
    case PbValue::Kind::sequence:
    case PbValue::Kind::optional:
      break;
  }
  std::vector<HostValue> items;
  for (const PbValue& i : v.items) items.push_back(convert(i));
  return v.kind == PbValue::Kind::sequence ? HostValue::sequence(std::move(items))
                                           : HostValue::optional(std::move(items));
}

}  // namespace

HostValue load_pb(const std::string& path, const ir::Type& type) {
  auto bytes = std::make_shared<const std::string>(read_file(path));
  PbValue::Kind kind = type.kind == TypeKind::sequence   ? PbValue::Kind::sequence
                       : type.kind == TypeKind::optional ? PbValue::Kind::optional
                                                         : PbValue::Kind::tensor;
  return with_place(path, [&] { return convert(parse_pb_value(*bytes, kind, bytes)); });
}

}  // namespace pelton::cli
