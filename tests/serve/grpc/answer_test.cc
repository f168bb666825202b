// SPDX-License-Identifier: Apache-2.0
// The bytes that are put together by hand are those of the message, and large tensors are not copied.
#include "serve/grpc/answer.h"

#include <doctest/doctest.h>

#include "grpc_service.pb.h"
#include "serve/grpc/convert.h"
#include "support/expect_error.h"

namespace pelton::serve::test {

using pelton::test::expect_error;
namespace {

std::string bytes_of(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  CHECK(buffer.Dump(&slices).ok());
  std::string out;
  for (const auto& s : slices) out.append(reinterpret_cast<const char*>(s.begin()), s.size());
  return out;
}

// Outputs of these sizes, each filled with its own byte.
Response response(const std::vector<size_t>& sizes) {
  Response r;
  r.model = "m", r.version = "2", r.id = "an id";
  r.parameters["sequence_id"] = uint64_t{7};
  for (size_t i = 0; i < sizes.size(); ++i)
    r.outputs.push_back({cat("OUTPUT", i),
                         DType::u8,
                         {1, static_cast<int64_t>(sizes[i])},
                         Blob::from(std::string(sizes[i], static_cast<char>('a' + i)))});
  return r;
}

inference::ModelInferResponse message(const Response& r) {
  inference::ModelInferResponse m;
  write_infer_head(r, {}, m);
  for (const TensorValue& t : r.outputs) m.add_raw_output_contents(t.data.data, t.data.size);
  return m;
}

const std::vector<std::vector<size_t>> kSizes = {{},
                                                 {0},
                                                 {1},
                                                 {127},
                                                 {128},
                                                 {16 << 10},
                                                 {(16 << 10) + 1},
                                                 {300'000},
                                                 {1, 300'000, 2, 0, 40'000, 3},
                                                 {20'000, 20'000}};

}  // namespace

TEST_CASE("an answer is the bytes of its message") {
  MemoryGate gate(10 << 20);
  for (const auto& sizes : kSizes) {
    const Response r = response(sizes);
    CHECK(bytes_of(infer_answer(response(sizes), {}, gate)) == message(r).SerializeAsString());
    inference::ModelStreamInferResponse in_stream;
    *in_stream.mutable_infer_response() = message(r);
    CHECK(bytes_of(stream_answer(response(sizes), {}, gate)) == in_stream.SerializeAsString());
  }
  CHECK(gate.used() == 0);
  inference::ModelStreamInferResponse error;
  REQUIRE(error.ParseFromString(bytes_of(stream_error("an id", "it broke"))));
  CHECK(error.error_message() == "it broke");
  CHECK(error.infer_response().id() == "an id");
}

TEST_CASE("a large tensor is lent, and counts until the last byte has left") {
  MemoryGate gate(1 << 20);
  Response r = response({300'000});
  const char* const data = r.outputs[0].data.data;
  const std::weak_ptr<const void> owner = r.outputs[0].data.owner;
  {
    const grpc::ByteBuffer answer = infer_answer(std::move(r), {}, gate);
    CHECK(gate.used() > 300'000);
    std::vector<grpc::Slice> slices;
    REQUIRE(answer.Dump(&slices).ok());
    CHECK(std::any_of(slices.begin(), slices.end(), [&](const grpc::Slice& s) {
      return reinterpret_cast<const char*>(s.begin()) == data && s.size() == 300'000;
    }));
    CHECK_FALSE(owner.expired());
  }
  CHECK(owner.expired());
  CHECK(gate.used() == 0);
  expect_error(ErrorCode::busy, {"as many bytes of answers as it may"},
               [&] { infer_answer(response({2 << 20}), {}, gate); });
  CHECK(infer_answer(response({1000}), {}, gate).Length() > 1000);
  CHECK(gate.used() == 0);
  // In a stream one response follows the other, so every one counts.
  const grpc::ByteBuffer small = stream_answer(response({1000}), {}, gate);
  CHECK(gate.used() == small.Length() - 3);
}

}  // namespace pelton::serve::test
