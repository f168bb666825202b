// SPDX-License-Identifier: Apache-2.0
#include "tensor/proto_wire.h"

#include <doctest/doctest.h>

#include "support/expect_error.h"
#include "tensor/tensor_pb.h"
#include "tensor/tensor_pb_messages.h"

using namespace pelton;
using test::expect_error;
using namespace std::string_literals;

TEST_CASE("a message written is a message read, unknown fields are skipped") {
  wire::Writer w;
  w.ints(pb::TensorProto::dims, {2, 300});
  w.integer(pb::TensorProto::dims, 7);
  w.integer(77, -1);
  w.bytes(78, "unknown");
  w.bytes(pb::TensorProto::name, "weight");
  std::vector<int64_t> dims;
  std::string_view name;
  wire::Reader r(wire::whole(w.data()), pb::tensor_proto());
  while (uint32_t field = r.next()) {
    if (field == pb::TensorProto::dims) r.append_to(dims);
    if (field == pb::TensorProto::name) name = r.text();
  }
  CHECK(dims == std::vector<int64_t>{2, 300, 7});
  CHECK(name == "weight");
}

TEST_CASE("damage is refused with message, field and offset") {
  auto read = [](const std::string& bytes) {
    wire::Reader r(wire::whole(bytes), pb::tensor_proto());
    std::vector<int64_t> dims;
    while (uint32_t field = r.next())
      if (field == pb::TensorProto::dims) r.append_to(dims);
  };
  expect_error(ErrorCode::bad_format, {"ends inside a number", "TensorProto.dims at byte 0"},
               [&] { read("\x08"); });
  expect_error(ErrorCode::bad_format, {"5 bytes where 3 are left", "TensorProto.name at byte 2"},
               [&] { read("\x08\x01\x42\x05xyz"); });
  expect_error(ErrorCode::bad_format, {"wire type 5 where 2 belongs"}, [&] { read("\x45\x01\x02\x03\x04"); });
  expect_error(ErrorCode::bad_format, {"cut off", "TensorProto.dims"}, [&] { read("\x0a\x01\x80"); });
  expect_error(ErrorCode::bad_format, {"longer than 10 bytes"},
               [&] { read(std::string("\x08").append(11, char(0xff))); });
  expect_error(ErrorCode::bad_format, {"field number 0"}, [&] { read("\x00\x01"s); });
  expect_error(ErrorCode::bad_format, {"wire type 3 is not used"}, [&] { read("\xa3\x06"); });
}

TEST_CASE("nesting is bounded") {
  std::string message;
  for (int i = 0; i < 200; ++i) {
    wire::Writer w;
    w.bytes(pb::SequenceProto::sequence_values, message);
    message = w.take();
  }
  auto owner = std::make_shared<std::string>(message);
  expect_error(ErrorCode::limit, {"nested more than 100 deep", "SequenceProto at byte"},
               [&] { parse_pb_value(*owner, PbValue::Kind::sequence, owner); });
}
