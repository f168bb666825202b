// SPDX-License-Identifier: Apache-2.0
// Scatters, index tuples, generated tensors, pads that repeat, max pooling with indices.
#include <doctest/doctest.h>

#include "backend/cpu/harness.h"
#include "base/cat.h"
#include "ir/text.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::test;

namespace {

Tensor data(const std::string& type, Dims d, uint64_t seed = 1) {
  const DType t = *dtype_from_name(type);
  return random(t, std::move(d), seed, is_float(t) ? -9 : 0, t == DType::boolean ? 2 : 9);
}
Options only(const char* implementation) {
  Options o;
  o.implementation = implementation;
  return o;
}

}  // namespace

TEST_CASE("gather_nd with and without batch dims") {
  for (const char* type : {"f32", "i64", "u8", "bool"}) {
    check_node(cat("graph \"g\"(%x: ", type, "[4,3,5], %i: i64[2,6,2]) { %y = gather_nd(%x, %i) : ", type,
                   "[2,6,5] return %y }"),
               {data(type, {4, 3, 5}), random(DType::i64, {2, 6, 2}, 3, -2.9, 2.4)}, only("cpu.gather_nd"));
    check_node(cat("graph \"g\"(%x: ", type,
                   "[2,3,5], %i: i32[2,4,1]) { %y = gather_nd(%x, %i) {batch_dims = 1} : ", type,
                   "[2,4,5] return %y }"),
               {data(type, {2, 3, 5}), random(DType::i32, {2, 4, 1}, 3, -2.9, 2.4)}, only("cpu.gather_nd"));
  }
  const ir::Graph g = ir::parse_graph(
      "graph \"g\"(%x: f32[4,3], %i: i64[1,2]) { %y = gather_nd(%x, %i) : f32[1] return %y }");
  expect_error(ErrorCode::bad_shape, {"index 3", "outside"}, [&] {
    run_on_cpu(g, {data("f32", {4, 3}), Tensor::from<int64_t>({1, 2}, {1, 3})}, only("cpu.gather_nd"));
  });
}

TEST_CASE("scatters: without a reduction the last update wins, else every one counts") {
  for (const char* type : {"f32", "f64", "i32", "i64", "u8"})
    for (const char* kind : {"none", "add", "mul", "max", "min"}) {
      const std::string t = type;
      if (t == "u8" && std::string(kind) != "none") continue;
      check_node(cat("graph \"g\"(%x: ", t, "[5,4,3], %i: i64[7,1], %u: ", t,
                     "[7,4,3]) { %y = scatter_nd(%x, %i, %u) {reduction = \"", kind, "\"} : ", t,
                     "[5,4,3] return %y }"),
                 {data(t, {5, 4, 3}), random(DType::i64, {7, 1}, 2, -4.9, 4.4), data(t, {7, 4, 3}, 3)},
                 only("cpu.scatter_nd"));
      check_node(cat("graph \"g\"(%x: ", t, "[5,4], %i: i64[3,9], %u: ", t,
                     "[3,9]) { %y = scatter_elements(%x, %i, %u) {axis = 1, reduction = \"", kind,
                     "\"} : ", t, "[5,4] return %y }"),
                 {data(t, {5, 4}), random(DType::i64, {3, 9}, 2, -3.9, 3.4), data(t, {3, 9}, 3)},
                 only("cpu.scatter_elements"));
    }
  CHECK(
      refusal(ir::parse_graph("graph \"g\"(%x: bf16[2], %i: i64[1], %u: bf16[1]) { %y = scatter_elements(%x, "
                              "%i, %u) {axis = 0, reduction = \"add\"} : bf16[2] return %y }"),
              "cpu.scatter_elements") == "folds f32, f64, i32 and i64, not bf16");
}

TEST_CASE("iota, fill, one_hot, trilu") {
  for (const char* type : {"i64", "i32", "f32"})
    for (int axis : {0, 1, -1})
      check_node(cat("graph \"g\"() { %y = iota() {dims = dims[3,4,2], axis = ", axis, ", dtype = ", type,
                     "} : ", type, "[3,4,2] return %y }"),
                 {}, only("cpu.iota"));
  for (const char* type : {"f32", "bool", "i64", "bf16"}) {
    const std::string t = type;
    check_node(
        cat("graph \"g\"(%v: ", t, "[]) { %y = fill(%v) {dims = dims[3,5]} : ", t, "[3,5] return %y }"),
        {data(t, {})}, only("cpu.fill"));
    for (const char* axis : {"-1", "0", "1"}) {
      const std::string shape = axis[0] == '0' ? "[6,4,3]" : axis[0] == '1' ? "[4,6,3]" : "[4,3,6]";
      Options o = only("cpu.one_hot");
      check_node(
          cat("graph \"g\"(%i: i64[4,3], %v: ", t,
              "[2]) { %d = constant() {value = tensor<i64[]>{6}} : i64[] %y = one_hot(%i, %d, %v) {axis = ",
              axis, "} : ", t, shape, " return %y }"),
          {random(DType::i64, {4, 3}, 2, -9, 9), data(t, {2})}, o);
    }
    for (const char* upper : {"true", "false"})
      for (int64_t k : {-9, -2, 0, 1, 3, 9})
        check_node(cat("graph \"g\"(%x: ", t, "[2,4,5], %k: i64[]) { %y = trilu(%x, %k) {upper = ", upper,
                       "} : ", t, "[2,4,5] return %y }"),
                   {data(t, {2, 4, 5}), Tensor::scalar<int64_t>(k)}, only("cpu.trilu"));
  }
}

TEST_CASE("pads that repeat: as often as needed, and crops") {
  for (const char* mode : {"reflect", "edge", "wrap"})
    for (const char* type : {"f32", "u8", "i64", "bf16"}) {
      const std::string t = type;
      check_node(cat("graph \"g\"(%x: ", t,
                     "[2,3,4]) { %y = pad(%x) {low = dims[0,5,-1], high = dims[1,2,7], mode = \"", mode,
                     "\"} : ", t, "[3,10,10] return %y }"),
                 {data(t, {2, 3, 4})}, only("cpu.pad_repeat"));
    }
}

TEST_CASE("max pooling with strides and dilations beyond 32 bits") {
  check_node(
      "graph \"g\"(%x: f32[1,1,4,4]) { %y = max_pool(%x) {kernel = [2,2], strides = [4611686018427387904,1]} "
      ": "
      "f32[1,1,1,3] return %y }",
      {data("f32", {1, 1, 4, 4})});
  check_node(
      "graph \"g\"(%x: f32[1,1,4,4]) { %y = max_pool(%x) {kernel = [1,1], strides = [1,1], dilations = "
      "[1099511627776,1]} : f32[1,1,4,4] return %y }",
      {data("f32", {1, 1, 4, 4})});
}

TEST_CASE("max pooling with indices") {
  for (const char* type : {"f32", "u8", "i8"})
    for (const char* order : {"true", "false"}) {
      const std::string t = type;
      check_node(
          cat("graph \"g\"(%x: ", t,
              "[2,3,7,6]) { %y, %i = max_pool(%x) {kernel = [3,2], strides = [2,2], low = dims[1,0], high = "
              "dims[1,1], row_major = ",
              order, "} : ", t, "[2,3,4,3], i64[2,3,4,3] return %y, %i }"),
          {data(t, {2, 3, 7, 6})}, only("cpu.max_pool"));
    }
}
