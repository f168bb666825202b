// SPDX-License-Identifier: Apache-2.0
// Bodies that are the tensor itself: shapes come from the configuration and the size.
#include <doctest/doctest.h>

#include "serve/core/fixture.h"
#include "serve/http/raw_request.h"
#include "support/expect_error.h"

namespace pelton::serve::test {
namespace {

ModelConfig config(int64_t max_batch, DType type, Dims dims) {
  ModelConfig c;
  c.name = "m";
  c.max_batch = max_batch;
  TensorSpec spec;
  spec.name = "x";
  spec.dtype = type;
  spec.dims = std::move(dims);
  c.inputs.push_back(spec);
  return c;
}

TensorValue read(const ModelConfig& c, const std::string& body, MemoryGate& gate) {
  Request r;
  read_raw_request(r, Blob::from(std::string(body)), c, gate);
  REQUIRE(r.inputs.size() == 1);
  return std::move(r.inputs[0]);
}

}  // namespace

TEST_CASE("a raw body takes the open dimension that its size asks for, one row where the model batches") {
  MemoryGate gate(1 << 20);
  TensorValue t = read(config(0, DType::f32, {-1, 3}), std::string(24, '\0'), gate);
  CHECK(t.name == "x");
  CHECK(t.dims == Dims{2, 3});
  CHECK(t.data.size == 24);
  CHECK(read(config(8, DType::u8, {4, -1}), std::string(12, '\0'), gate).dims == Dims{1, 4, 3});
  CHECK(read(config(8, DType::i64, {2}), std::string(16, '\0'), gate).dims == Dims{1, 2});
  CHECK(gate.used() == 0);                  // these lie in the body
  const std::string picture(0x10203, 'p');  // of a BYTES input the body is the one element
  t = read(config(0, DType::string, {-1}), picture, gate);
  CHECK(t.dims == Dims{1});
  CHECK(std::string(t.data.data, t.data.size) == std::string("\x03\x02\x01\0", 4) + picture);
  CHECK(gate.used() == picture.size() + 4);  // a copy, which counts
}

TEST_CASE("a raw body that fits no shape is refused") {
  MemoryGate gate(1 << 20);
  const auto refused = [&](const ModelConfig& c, size_t bytes) {
    const std::string size = cat("of ", bytes, " bytes does not fit input 'x'");
    pelton::test::expect_error(ErrorCode::bad_shape, {size.c_str()},
                               [&] { read(c, std::string(bytes, '\0'), gate); });
  };
  refused(config(0, DType::f32, {-1, 3}), 20);   // no whole rows
  refused(config(0, DType::f32, {-1, -1}), 24);  // two open dimensions
  refused(config(0, DType::f32, {0, -1}), 8);    // none of it has any bytes
  refused(config(0, DType::string, {2}), 5);     // one element is all that a body can be
  ModelConfig two = config(0, DType::f32, {1});
  two.inputs.push_back(two.inputs[0]);
  two.inputs[1].name = "y";
  pelton::test::expect_error(ErrorCode::bad_format, {"a raw request is of one input", "x, y"},
                             [&] { read(two, "abcd", gate); });
}

}  // namespace pelton::serve::test
