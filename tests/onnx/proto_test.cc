// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "onnx/proto/messages.h"
#include "onnx/proto/model_view.h"
#include "support/expect_error.h"

using namespace pelton;
using test::expect_error;

TEST_CASE("files that are not models say what they are") {
  expect_error(ErrorCode::bad_format, {"empty"}, [] { onnx::parse_model(""); });
  expect_error(ErrorCode::bad_format, {"Git LFS pointer", "git lfs pull"}, [] {
    onnx::parse_model("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 1\n");
  });
  expect_error(ErrorCode::bad_format, {"zip archive"}, [] { onnx::parse_model("PK\x03\x04zip"); });
  expect_error(ErrorCode::bad_format, {"web page"}, [] { onnx::parse_model("<!DOCTYPE html>"); });
  expect_error(ErrorCode::bad_format, {"no graph"}, [] { onnx::parse_model("\x08\x07"); });
}

TEST_CASE("an attribute without a type takes that of its field") {
  wire::Writer attribute, node, graph, model;
  attribute.bytes(pb::AttributeProto::name, "axes");
  attribute.ints(pb::AttributeProto::ints, {1, -2});
  node.bytes(pb::NodeProto::op_type, "Squeeze");
  node.bytes(pb::NodeProto::domain, "ai.onnx");
  node.bytes(pb::NodeProto::attribute, attribute.data());
  graph.bytes(pb::GraphProto::node, node.data());
  model.bytes(pb::ModelProto::graph, graph.data());
  std::string file = model.take();
  onnx::ModelView view = onnx::parse_model(file);
  REQUIRE(view.graph.nodes.size() == 1);
  const onnx::NodeView& n = view.graph.nodes[0];
  CHECK(n.op_type == "Squeeze");
  CHECK(n.domain.empty());
  REQUIRE(n.attributes.size() == 1);
  CHECK(n.attributes[0].type == onnx::AttributeView::Type::ints);
  CHECK(n.attributes[0].ints == std::vector<int64_t>{1, -2});
}

TEST_CASE("an attribute that lacks its value is refused") {
  wire::Writer attribute, node, graph, model;
  attribute.bytes(pb::AttributeProto::name, "body");
  attribute.integer(pb::AttributeProto::type, 5);
  node.bytes(pb::NodeProto::attribute, attribute.data());
  graph.bytes(pb::GraphProto::node, node.data());
  model.bytes(pb::ModelProto::graph, graph.data());
  std::string file = model.take();
  expect_error(ErrorCode::bad_format, {"attribute 'body' lacks the value"}, [&] { onnx::parse_model(file); });
}

TEST_CASE("a file of more messages than anybody needs is refused, whatever it has too many of") {
  wire::Writer type, shape, value, graph, model;
  // The graph, its input, the type of that, and a size each: all that may be.
  const size_t sizes = 5'000'000 - 3;
  std::string dims;
  dims.reserve(2 * sizes);
  for (size_t i = 0; i < sizes; ++i) dims.append("\x0A\x00", 2);
  shape.bytes(pb::TypeProto_Tensor::shape, dims);
  type.bytes(pb::TypeProto::tensor_type, shape.data());
  value.bytes(pb::ValueInfoProto::type, type.data());
  graph.bytes(pb::GraphProto::input, value.data());
  model.bytes(pb::ModelProto::graph, graph.data());
  CHECK(onnx::parse_model(model.data()).graph.inputs[0].type.dims.size() == sizes);
  const auto refused = [](const wire::Writer& file) {
    expect_error(ErrorCode::limit, {"more than 5000000 messages"}, [&] { onnx::parse_model(file.data()); });
  };
  for (const uint32_t field : {pb::GraphProto::initializer, pb::GraphProto::sparse_initializer}) {
    CAPTURE(field);
    wire::Writer longer, file;
    longer.bytes(pb::GraphProto::input, value.data());
    longer.bytes(field, "");
    file.bytes(pb::ModelProto::graph, longer.data());
    refused(file);
  }
  wire::Writer file;
  file.bytes(pb::ModelProto::graph, graph.data());
  file.bytes(pb::ModelProto::metadata_props, "");
  refused(file);
}

TEST_CASE("sparse tensors of attributes are counted like other messages") {
  wire::Writer attribute, node, graph, model;
  attribute.bytes(pb::AttributeProto::name, "a");
  attribute.integer(pb::AttributeProto::type, 12);
  std::string tensors;  // the field's number takes two bytes
  for (size_t i = 0; i < 5'000'001; ++i) tensors.append("\xBA\x01\x00", 3);
  node.bytes(pb::NodeProto::attribute, std::string(attribute.data()) + tensors);
  graph.bytes(pb::GraphProto::node, node.data());
  model.bytes(pb::ModelProto::graph, graph.data());
  expect_error(ErrorCode::limit, {"more than 5000000 messages"}, [&] { onnx::parse_model(model.data()); });
}

TEST_CASE("a tensor has no more entries of external data than the format has keys for, and some") {
  wire::Writer tensor;
  for (int i = 0; i < 16; ++i) tensor.bytes(pb::TensorProto::external_data, "");
  CHECK(parse_tensor_proto(wire::whole(tensor.data())).external_data.size() == 16);
  tensor.bytes(pb::TensorProto::external_data, "");
  expect_error(ErrorCode::limit, {"more than 16 entries of external data"},
               [&] { parse_tensor_proto(wire::whole(tensor.data())); });
}
