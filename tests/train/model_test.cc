// SPDX-License-Identifier: Apache-2.0
#include "train/model.h"

#include <doctest/doctest.h>

#include "ir/text.h"
#include "onnx/export/export.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

using namespace pelton;

namespace {

// Two batch norms; the second keeps its mean in `mean`.
std::string norms(const std::string& mean) {
  const std::string c = " = constant() {value = tensor<f32[2]>{1, 2}} : f32[2]\n";
  return "graph \"g\"(%x: f32[N,2,3]) {\n  symbol N in [1, 64]\n  %m" + c + "  %n" + c + "  %v" + c + "  %w" +
         c + "  %s" + c +
         "  %y = batch_norm(%x, %s, %s, %m, %v) {eps = 0.001} : f32[N,2,3]\n  %z = batch_norm(%y, %s, %s, " +
         mean + ", %w) {eps = 0.001} : f32[N,2,3]\n  return %z\n}\n";
}

}  // namespace

TEST_CASE("a model from a file whose batch norms share their statistics is refused") {
  test::TempDir dir;
  onnx::export_file(ir::parse_graph(norms("%n")), dir / "own.onnx");
  CHECK(train::onnx_model(dir / "own.onnx", {})->inputs().size() == 1);
  onnx::export_file(ir::parse_graph(norms("%m")), dir / "shared.onnx");
  test::expect_error(ErrorCode::bad_format, {"2 batch norms", "shared.onnx", "each with its own"},
                     [&] { train::onnx_model(dir / "shared.onnx", {}); });
}

TEST_CASE("a model from a file with open sizes takes those that the recipe names") {
  test::TempDir dir;
  const std::string path = dir / "open.onnx";
  onnx::export_file(
      ir::parse_graph("graph \"g\"(%x: f32[N,2,L]) {\n  symbol N in [1, 64]\n  symbol L in [1, 64]\n"
                      "  %y = relu(%x) : f32[N,2,L]\n  return %y\n}\n"),
      path);
  CHECK(train::onnx_model(path, {{"x", ir::Ints{2, 5}}})->inputs()[0].sample == Dims{2, 5});
  test::expect_error(ErrorCode::bad_shape, {"only the batch may be open", "input 'x'", "x = [3, 32, 32]"},
                     [&] { train::onnx_model(path, {}); });
  test::expect_error(ErrorCode::bad_name, {"'y'", "x"}, [&] {
    train::onnx_model(path, {{"y", ir::Ints{2, 5}}});
  });
  test::expect_error(ErrorCode::bad_shape, {"axis 1", "'x'", "fixed at 2"}, [&] {
    train::onnx_model(path, {{"x", ir::Ints{3, 5}}});
  });
  test::expect_error(ErrorCode::usage, {"'x'", "list of integers"}, [&] {
    train::onnx_model(path, {{"x", int64_t{5}}});
  });
}
