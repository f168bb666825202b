// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor_pb.h"

#include <doctest/doctest.h>

#include <cstring>

#include "support/expect_error.h"
#include "tensor/tensor_pb_messages.h"

using namespace pelton;
using test::expect_error;

namespace {

Tensor read(const std::string& bytes) {
  auto owner = std::make_shared<std::string>(bytes);
  return parse_pb_value(*owner, PbValue::Kind::tensor, owner).tensor;
}
wire::Writer header(DType t, const Dims& dims) {
  wire::Writer w;
  w.ints(pb::TensorProto::dims, dims);
  w.integer(pb::TensorProto::data_type, onnx_from_dtype(t));
  return w;
}

}  // namespace

TEST_CASE("every dtype survives writing and reading") {
  for (int i = 0; i < kDTypeCount; ++i) {
    auto t = static_cast<DType>(i);
    Tensor x = t == DType::string ? Tensor::of_strings({3}, {"a", "", "\xc3\xa9"})
                                  : from_doubles(t, {3}, {1, t == DType::f8e8m0 ? 2.0 : 0, 1});
    CHECK(read(write_tensor_proto(x, "x")).same_bytes(x));
  }
}

TEST_CASE("raw data is borrowed from the file when aligned") {
  Tensor x = from_doubles(DType::f32, {4}, {1, 2, 3, 4});
  for (size_t shift = 0; shift < 4; ++shift) {
    auto file = std::make_shared<std::string>(std::string(shift, ' ') + write_tensor_proto(x, ""));
    std::string_view message = std::string_view(*file).substr(shift);
    TensorView view = parse_tensor_proto(wire::whole(message));
    Tensor y = to_tensor(view, file);
    CHECK(y.same_bytes(x));
    bool aligned = reinterpret_cast<uintptr_t>(view.raw.data()) % 4 == 0;
    CHECK((y.data() == view.raw.data()) == aligned);
  }
}

TEST_CASE("typed fields, packed and one by one") {
  wire::Writer w = header(DType::f32, {3});
  w.floats(pb::TensorProto::float_data, {1.5f, -2});
  w.f32(pb::TensorProto::float_data, 4);
  CHECK(to_doubles(read(w.take())) == std::vector<double>{1.5, -2, 4});

  w = header(DType::i8, {3});
  w.ints(pb::TensorProto::int32_data, {-1, 127});
  w.integer(pb::TensorProto::int32_data, -128);
  CHECK(to_ints(read(w.take())) == std::vector<int64_t>{-1, 127, -128});

  w = header(DType::f16, {2});
  w.ints(pb::TensorProto::int32_data, {0x3c00, 0xc000});
  CHECK(to_doubles(read(w.take())) == std::vector<double>{1, -2});

  w = header(DType::i4, {3});
  w.ints(pb::TensorProto::int32_data, {0xf1, 0x07});
  CHECK(to_ints(read(w.take())) == std::vector<int64_t>{1, -1, 7});

  w = header(DType::u64, {1});
  w.integer(pb::TensorProto::uint64_data, -1);
  CHECK(read(w.take()).get_double(0) == 18446744073709551616.0);
}

TEST_CASE("complex numbers become pairs") {
  wire::Writer w;
  w.ints(pb::TensorProto::dims, {2});
  w.integer(pb::TensorProto::data_type, 14);
  w.floats(pb::TensorProto::float_data, {1, 2, 3, 4});
  Tensor t = read(w.take());
  CHECK(t.str() == "f32[2,2]");
  CHECK(t.get_double(3) == 4);
}

TEST_CASE("tensors that lie about themselves are refused by name") {
  auto refused = [](wire::Writer w, ErrorCode code, std::initializer_list<const char*> words) {
    w.bytes(pb::TensorProto::name, "liar");
    std::string bytes = w.take();
    expect_error(code, words, [&] { read(bytes); });
  };
  wire::Writer w = header(DType::f32, {1 << 30, 1 << 30, 1 << 30});
  w.bytes(pb::TensorProto::raw_data, "abcd");
  refused(w, ErrorCode::limit, {"liar"});
  w = header(DType::f32, {1 << 30});
  w.bytes(pb::TensorProto::raw_data, "abcd");
  refused(w, ErrorCode::bad_format, {"tensor 'liar'", "holds 4 bytes", "needs 4294967296"});
  refused(header(DType::f32, {-2}), ErrorCode::bad_shape, {"negative size", "[-2]"});
  w = header(DType::i64, {2});
  w.ints(pb::TensorProto::int64_data, {1, 2, 3});
  refused(w, ErrorCode::bad_format, {"holds 3 numbers", "needs 2"});
  w = header(DType::f32, {1});
  w.integer(pb::TensorProto::data_type, 27);
  refused(w, ErrorCode::bad_type, {"float6e2m3 is not supported"});
  w = header(DType::f32, {1});
  w.integer(pb::TensorProto::data_location, 1);
  refused(w, ErrorCode::not_found, {"another file"});
}

TEST_CASE("sparse tensors, by linear and by per-axis index") {
  Tensor values = from_doubles(DType::f32, {2}, {5, 7});
  for (const Tensor& at : {from_ints(DType::i64, {2}, {1, 5}), from_ints(DType::i64, {2, 2}, {0, 1, 1, 2})}) {
    wire::Writer w;
    w.bytes(pb::SparseTensorProto::values, write_tensor_proto(values, "s"));
    w.bytes(pb::SparseTensorProto::indices, write_tensor_proto(at, ""));
    w.ints(pb::SparseTensorProto::dims, {2, 3});
    auto file = std::make_shared<std::string>(w.take());
    Tensor t = sparse_to_tensor(wire::whole(*file), file);
    CHECK(to_doubles(t) == std::vector<double>{0, 5, 0, 0, 0, 7});
  }
  wire::Writer w;
  w.bytes(pb::SparseTensorProto::values, write_tensor_proto(values, "s"));
  w.bytes(pb::SparseTensorProto::indices, write_tensor_proto(from_ints(DType::i64, {2}, {0, 6}), ""));
  w.ints(pb::SparseTensorProto::dims, {2, 3});
  auto file = std::make_shared<std::string>(w.take());
  expect_error(ErrorCode::bad_format, {"index 6 outside 6 elements", "sparse tensor 's'"},
               [&] { sparse_to_tensor(wire::whole(*file), file); });
}
