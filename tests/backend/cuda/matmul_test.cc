// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <limits>

#include "backend/cuda/harness.h"
#include "base/cat.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::test;

namespace {

// relu(a v + b) with a vector v.
GpuCase vector_product(const Dims& operand) {
  return {cat("graph \"g\"(%a: f16[2,8,16], %v: f16[16], %b: f16", operand,
              ") { %p = matmul(%a, %v) : f16[2,8] %s = add(%p, %b) : f16[2,8] %y = relu(%s) : f16[2,8] "
              "return %y }"),
          {random(DType::f16, {2, 8, 16}, 1), random(DType::f16, {16}, 2), random(DType::f16, operand, 3)},
          {"matmul", {}, {}}};
}

}  // namespace

TEST_CASE("a product of a matrix and a vector has a residual, but no bias of columns") {
  CHECK(vector_product({8}).refusal("cublaslt.matmul") == "adds f16[8]");
  CHECK(vector_product({2, 8}).refusal("cublaslt.matmul") == "");
}

TEST_CASE("a product of a matrix and a vector with a residual") {
  PELTON_NEEDS_GPU();
  vector_product({2, 8}).check("cublaslt.matmul");
}

namespace {

void check_long_rows(DType t, int64_t rows, int64_t columns, bool constant, bool transposed) {
  const Dims a = {1, rows, 24}, b = transposed ? Dims{columns, 24} : Dims{24, columns};
  const std::string result = cat(name(t), Dims{1, rows, columns});
  const std::string text =
      cat("graph \"g\"(%a: ", name(t), a, ", %b: ", name(t), b, ", %c: ", name(t), Dims{columns},
          ") { %p = matmul(%a, %b) {transpose_b = ", transposed ? "true" : "false", "} : ", result,
          " %y = add(%p, %c) : ", result, " return %y }");
  CAPTURE(text);
  GpuCase(text, {random(t, a, 1), random(t, b, 2), random(t, {columns}, 3)},
          {"matmul", {false, constant, constant}, {}})
      .check("cublaslt.matmul");
}

}  // namespace

TEST_CASE("products with rows as long as a vocabulary and no multiple of 16 bytes") {
  PELTON_NEEDS_GPU();
  for (DType t : {DType::f16, DType::bf16, DType::f32})
    for (int64_t rows : {1, 2, 130})
      for (int64_t columns : {517, 1002, 5003})
        for (bool constant : {true, false})
          for (bool transposed : {false, true}) check_long_rows(t, rows, columns, constant, transposed);
  check_long_rows(DType::f32, 200, 100003, true, false);  // in two stretches
}

TEST_CASE("NaN goes through an activation behind a product") {
  PELTON_NEEDS_GPU();
  for (const char* type : {"f16", "bf16", "f32"})
    for (const char* steps : {"%s = add(%p, %b) : Y %y = relu(%s) : Y", "%y = relu(%p) : Y"})
      for (const int64_t rows : {1, 48}) {
        const DType t = *dtype_from_name(type);
        std::string text =
            cat("graph \"g\"(%a: ", type, Dims{rows, 64}, ", %w: ", type, "[64,128], %b: ", type,
                "[128]) { %p = matmul(%a, %w) : Y ", steps, " return %y }");
        const std::string y = cat(type, Dims{rows, 128});
        for (size_t at; (at = text.find('Y')) != text.npos;) text.replace(at, 1, y);
        CAPTURE(text);
        Tensor w = random(t, {64, 128}, 2);
        w.set_double(77, std::numeric_limits<double>::quiet_NaN());  // a column of NaN
        GpuCase(text, {random(t, {rows, 64}, 1), w, random(t, {128}, 3)}, {"matmul", {}, {}})
            .check("cublaslt.matmul");
      }
}
