// SPDX-License-Identifier: Apache-2.0
// Views by strides hold the elements that the interpreter finds there. Needs no GPU.
#include <doctest/doctest.h>

#include <cstring>

#include "backend/cuda/attention/views.h"
#include "base/cat.h"
#include "interp/interpreter.h"
#include "ir/text.h"

using namespace pelton;
using namespace pelton::backend::cuda;

namespace {

// The view of %y over %x, whose elements are their own positions, against the values of %y.
void check_view(const std::string& steps, const Dims& x_dims) {
  CAPTURE(steps);
  const ir::Graph g = ir::parse_graph(cat("graph \"g\"(%x: i64", x_dims, ") { ", steps, " return %y }"));
  Tensor x(DType::i64, x_dims);
  for (int64_t i = 0; i < x.count(); ++i) x.set_int(i, i);
  const Tensor y = interp::run(g, {x}).outputs[0].tensor;
  const ViewChain chain = view_chain(g, g.outputs[0]);
  REQUIRE(chain.input == 0);
  const StridedView v = strided_view(g, chain, x_dims, {});
  REQUIRE(v.dims == y.dims());
  int64_t wrong = 0;
  for (int64_t i = 0; i < y.count(); ++i) {
    int64_t at = v.offset, rest = i;
    for (size_t d = v.dims.size(); d-- > 0;) {
      at += rest % v.dims[d] * v.strides[d];
      rest /= v.dims[d];
    }
    wrong += y.get_int(i) != at;
  }
  CHECK(wrong == 0);
}
std::string refusal(const std::string& steps, const Dims& x_dims) {
  const ir::Graph g = ir::parse_graph(cat("graph \"g\"(%x: i64", x_dims, ") { ", steps, " return %y }"));
  const ViewChain chain = view_chain(g, g.outputs[0]);
  CHECK(chain.input == -1);
  return chain.reason;
}

}  // namespace

TEST_CASE("views: heads of a merged product") {
  check_view(
      "%a = slice(%x) {axes = [2], starts = dims[8], sizes = dims[8], steps = [1]} : i64[2,5,8] "
      "%b = reshape(%a) {dims = dims[2,5,4,2]} : i64[2,5,4,2] "
      "%y = transpose(%b) {perm = [0,2,1,3]} : i64[2,4,5,2]",
      {2, 5, 24});
  check_view(
      "%a = reshape(%x) {dims = dims[2,5,3,4,2]} : i64[2,5,3,4,2] "
      "%b = transpose(%a) {perm = [2,0,3,1,4]} : i64[3,2,4,5,2] "
      "%c = slice(%b) {axes = [0], starts = dims[1], sizes = dims[1], steps = [1]} : i64[1,2,4,5,2] "
      "%y = reshape(%c) {dims = dims[2,4,5,2]} : i64[2,4,5,2]",
      {2, 5, 24});
}

TEST_CASE("views: rows of a matrix, steps, several slices") {
  check_view(
      "%a = reshape(%x) {dims = dims[2,3,2,4]} : i64[2,3,2,4] %y = transpose(%a) {perm = [0,2,1,3]} : "
      "i64[2,2,3,4]",
      {6, 8});
  check_view(
      "%a = slice(%x) {axes = [0,1], starts = dims[1,0], sizes = dims[2,3], steps = [2,1]} : i64[2,3,4] "
      "%y = slice(%a) {axes = [-1], starts = dims[2], sizes = dims[2], steps = [1]} : i64[2,3,2]",
      {4, 3, 4});
  check_view(
      "%a = transpose(%x) {perm = [1,0]} : i64[6,4] %y = reshape(%a) {dims = dims[6,2,2]} : i64[6,2,2]",
      {4, 6});
}

TEST_CASE("views: what strides cannot say is refused") {
  CHECK(refusal("%a = transpose(%x) {perm = [1,0]} : i64[6,4] %y = reshape(%a) {dims = dims[24]} : i64[24]",
                {4, 6}) == "reshapes a part of a tensor");
  CHECK(refusal("%y = neg(%x) : i64[4,6]", {4, 6}) == "is made by neg");
}
