// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <limits>

#include "backend/cuda/harness.h"
#include "backend/cuda/ragged_product.h"
#include "base/cat.h"
#include "device/artifacts.h"
#include "interp/accept.h"
#include "ir/text.h"
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

TEST_CASE("interleaved rows: aligned, each element of the result in one of them or at an edge") {
  using namespace backend::cuda;
  for (const DType out : {DType::f32, DType::f16})
    for (const int64_t n : {513, 1001, 1002, 5007, 50257, 30522}) {
      if (n % (out == DType::f32 ? 4 : 8) == 0) continue;
      MatmulProblem p;
      p.in = DType::f16;
      p.out = out;
      p.m = 19;
      p.n = n;
      p.k = 24;
      const MatmulProblem part = interleaved_part(p);
      const int64_t width = bits(out) / 8, step = part.stride_d - n;
      CAPTURE(n);
      CAPTURE(name(out));
      CHECK(part.pitch_d * width % 16 == 0);
      CHECK(part.stride_d * width % 16 == 0);
      CHECK(part.pitch_a * 2 % 16 == 0);
      CHECK(part.n > n - 100);
      bool right = true;
      for (int64_t j = 0; j < part.batch; ++j)
        for (int64_t i = 0; i < part.m; ++i) {
          const int64_t row = i * part.batch + j, first = step * (row % part.batch);  // as EdgeColumns has it
          right &= j * part.stride_a + i * part.pitch_a == row * p.k;
          right &= j * part.stride_b == first * p.k;
          right &= j * part.stride_d + i * part.pitch_d == row * n + first;
          right &= first + part.n <= n && row < p.m;
        }
      CHECK(right);
    }
}

TEST_CASE("vocabularies: both ways around rows that are not aligned") {
  PELTON_NEEDS_GPU();
  using namespace backend::cuda;
  struct Types {
    DType in, out;
  };
  for (const Types t : {Types{DType::f16, DType::f32},
                        {DType::f16, DType::f16},
                        {DType::bf16, DType::f32},
                        {DType::f32, DType::f32}})
    for (const int64_t m : {8, 19, 130})
      for (const int64_t n : {517, 1002, 5003})
        for (const bool transposed : {false, true}) {
          MatmulProblem p;
          p.in = t.in;
          p.out = t.out;
          p.m = m;
          p.n = n;
          p.k = 24;
          p.alpha = 0.5f;
          p.transpose_b = transposed;
          const Tensor a = random(t.in, {m, 24}, 1),
                       b = random(t.in, transposed ? Dims{n, 24} : Dims{24, n}, 2);
          const std::string text =
              cat("graph \"g\"(%a: f32", a.dims(), ", %b: f32", b.dims(),
                  ") { %p = matmul(%a, %b) {transpose_b = ", transposed ? "true" : "false", "} : f32",
                  Dims{m, n}, " %h = constant() {value = tensor<f32[]>{0.5}} : f32[] %y = mul(%p, %h) : f32",
                  Dims{m, n}, " return %y }");
          const ir::Graph graph = ir::parse_graph(text);
          const std::vector<ir::HostValue> wide = {
              ir::HostValue(from_doubles(DType::f32, a.dims(), to_doubles(a))),
              ir::HostValue(from_doubles(DType::f32, b.dims(), to_doubles(b)))};
          interp::Reference reference = interp::references(graph, wide)[0];
          reference.type = t.out;
          reference.plain = from_doubles(t.out, reference.plain.dims(), to_doubles(reference.plain));
          const DeviceBuffer x = upload(a, "a"), w = upload(b, "b");
          for (const auto make : {&RaggedProduct::interleaved, &RaggedProduct::stretches}) {
            const std::unique_ptr<RaggedProduct> way = (*make)(p, b);
            CAPTURE(text);
            CAPTURE(make == &RaggedProduct::interleaved);
            REQUIRE(way);
            Tensor y = Tensor::zeros(t.out, {m, n});
            for (int64_t i = 0; i < y.count(); ++i) y.set_double(i, -7);  // what nothing writes shows
            const DeviceBuffer d = upload(y, "d"),
                               scratch(std::max<int64_t>(way->scratch_bytes(), 1), "scratch");
            way->run(x.get(), w.get(), d.get(), nullptr, scratch.get(), nullptr);
            PELTON_CUDA(cudaStreamSynchronize(nullptr));
            PELTON_CUDA(cudaMemcpy(y.mutable_data(), d.get(), static_cast<size_t>(y.bytes()),
                                   cudaMemcpyDeviceToHost));
            CHECK(interp::judge(reference, y).reason == "");
          }
        }
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
        for (const bool by_timing : {true, false}) {
          const device::ArtifactScope scope(nullptr, by_timing);
          GpuCase(text, {random(t, {rows, 64}, 1), w, random(t, {128}, 3)}, {"matmul", {}, {}})
              .check("cublaslt.matmul");
        }
      }
}
