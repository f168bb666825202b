// SPDX-License-Identifier: Apache-2.0
// Every import function on too few, too many and unfit inputs: a clear error or a graph, never a fault of
// ours.
#include <doctest/doctest.h>

#include "model_text.h"
#include "onnx/import/table.h"

using namespace pelton;
using test::ModelText;

namespace {

// Empty, or the message of an internal error.
std::string fault_of(std::string_view domain, std::string_view op, int64_t opset, size_t inputs,
                     const Shape& shape, DType t, std::vector<onnx::OnnxAttr> attrs) {
  ModelText m;
  m.opset = opset;
  m.input("x", shape, t);
  m.output("y0").node(op, std::vector<std::string>(inputs, "x"), {"y0"}, std::move(attrs), domain);
  try {
    m.import();
  } catch (const Error& e) {
    if (e.code() == ErrorCode::internal) return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("no import function trips over inputs that do not fit") {
  std::vector<std::vector<onnx::OnnxAttr>> attribute_sets = {
      {},
      {onnx::attr("axis", int64_t{1}), onnx::attr("kernel_shape", std::vector<int64_t>{1, 1}),
       onnx::attr("num_heads", int64_t{2}), onnx::attr("q_num_heads", int64_t{2}),
       onnx::attr("kv_num_heads", int64_t{1}), onnx::attr("hidden_size", int64_t{3}),
       onnx::attr("num_groups", int64_t{2}), onnx::attr("size", int64_t{3}),
       onnx::attr("blocksize", int64_t{2})},
  };
  int tried = 0;
  for (auto [domain, op] : onnx::import_table().all())
    for (int64_t opset : {1, 9, 13, 21, 28})
      for (size_t inputs = 0; inputs < 9; ++inputs)
        for (const Shape& shape : {Shape{}, Shape{4}, Shape{2, 3}, Shape{1, 2, 4}, Shape{1, 2, 4, 4}})
          for (DType t : {DType::f32, DType::i64}) {
            if (opset != 21 && shape.size() > 1) continue;
            for (const auto& attrs : attribute_sets) {
              std::string fault = fault_of(domain, op, opset, inputs, shape, t, attrs);
              CHECK_MESSAGE(fault.empty(),
                            cat(domain, "::", op, " opset ", opset, " with ", inputs, " inputs: ", fault));
              ++tried;
            }
          }
  CHECK(tried > 10000);
}
