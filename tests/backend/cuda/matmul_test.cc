// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

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
