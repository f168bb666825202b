// SPDX-License-Identifier: Apache-2.0
// Contractions of 8-bit integers: every bit of the exact sum, and quantised graphs on the GPU from end to
// end.
#include <doctest/doctest.h>

#include "backend/cuda.h"
#include "backend/cuda/harness.h"
#include "backend/cuda/libraries.h"
#include "backend/cuda/matmul_call.h"
#include "backend/cuda/memory.h"
#include "base/cat.h"
#include "ir/text.h"
#include "runtime/plan.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::test;

namespace {

Tensor bytes(DType t, const Dims& dims, uint64_t seed) {
  return random(t, dims, seed, t == DType::i8 ? -128 : 0, t == DType::i8 ? 128 : 256);
}

struct Conv {
  Dims x, w, y;
  std::string attrs;
};
const Conv kConvs[] = {
    {{2, 32, 14, 14}, {64, 32, 3, 3}, {2, 64, 14, 14}, "low = dims[1,1], high = dims[1,1]"},  // a product
    {{3, 64, 16, 16}, {128, 64, 1, 1}, {3, 128, 16, 16}, ""},
    {{2, 3, 33, 34}, {32, 3, 3, 3}, {2, 32, 17, 17}, "strides = [2,2], low = dims[1,1], high = dims[1,1]"},
    {{1, 20, 24, 24},
     {36, 20, 5, 3},
     {1, 36, 16, 24},
     "low = dims[0,1], high = dims[0,1], dilations = [2,1]"},
    {{1, 96, 7, 7}, {576, 96, 1, 1}, {1, 576, 7, 7}, ""},  // places that are no multiple of four
    {{1, 6, 5, 7}, {10, 6, 3, 3}, {1, 10, 3, 5}, ""},      // small
    {{2, 8, 6, 6}, {8, 1, 3, 3}, {2, 8, 6, 6}, "groups = 8, low = dims[1,1], high = dims[1,1]"},
    {{1, 8, 7}, {6, 4, 3}, {1, 6, 7}, "groups = 2, low = dims[1], high = dims[1]"},
    {{1, 4, 3, 4, 5}, {8, 4, 2, 2, 2}, {1, 8, 2, 3, 4}, ""},
    {{0, 4, 5, 5}, {8, 4, 3, 3}, {0, 8, 3, 3}, ""},
};

}  // namespace

TEST_CASE("convolutions of bytes in every layout, of every sign, with zero points") {
  PELTON_NEEDS_GPU();
  for (const Conv& c : kConvs)
    for (const char* x_type : {"u8", "i8"})
      for (const char* w_type : {"i8", "u8"})
        for (const char* layout : {"", "{nhwc}"})
          for (int zeros : {0, 1, 2})  // none, one each, one a channel of the weights
            for (bool constant : {true, false}) {
              const DType xt = *dtype_from_name(x_type), wt = *dtype_from_name(w_type);
              const std::string l = c.x.size() > 3 ? layout : "";
              const Dims w_zeros = zeros == 2 ? Dims{c.y[1]} : Dims{};
              const std::string text =
                  cat("graph \"g\"(%x: ", x_type, c.x, l, ", %w: ", w_type, c.w, ", %b: i32", Dims{c.y[1]},
                      zeros ? cat(", %zx: ", x_type, "[], %zw: ", w_type, w_zeros) : "",
                      ") { %y = conv(%x, %w, %b", zeros ? ", %zx, %zw" : "", ") {", c.attrs, "} : i32", c.y,
                      l, " return %y }");
              CAPTURE(text);
              CAPTURE(constant);
              std::vector<Tensor> in = {bytes(xt, c.x, 1), bytes(wt, c.w, 2),
                                        random(DType::i32, {c.y[1]}, 3, -5000, 5000)};
              if (zeros) {
                in.push_back(bytes(xt, {}, 4));
                in.push_back(zeros == 1 && wt == DType::i8 ? Tensor::zeros(wt, {}) : bytes(wt, w_zeros, 5));
              }
              GpuCase(text, in, {"", {false, constant, constant, constant, constant}, {}})
                  .check("cuda.integer");
            }
}

TEST_CASE("the largest of each window of bytes") {
  PELTON_NEEDS_GPU();
  for (const char* type : {"u8", "i8"})
    for (const char* layout : {"", "{nhwc}"}) {
      const DType t = *dtype_from_name(type);
      const std::string text =
          cat("graph \"g\"(%x: ", type, "[2,5,9,11]", layout,
              ") { %y = max_pool(%x) {kernel = [3,2], strides = [2,1], low = dims[1,0], high = dims[1,1]} : ",
              type, "[2,5,5,11]", layout, " return %y }");
      CAPTURE(text);
      GpuCase(text, {bytes(t, {2, 5, 9, 11}, 1)}).check("cuda.integer_pool");
    }
}

TEST_CASE("products of bytes: batches, transposed sides, zero points of rows and columns") {
  PELTON_NEEDS_GPU();
  struct Product {
    Dims a, b, y, za, zb;
    const char* attrs;
  };
  const Product all[] = {
      {{128, 256}, {256, 192}, {128, 192}, {}, {}, ""},  // on tensor cores where b is constant
      {{2, 70, 200}, {132, 200}, {2, 70, 132}, {}, {}, "transpose_b = true"},
      {{1, 1024}, {1024, 1024}, {1, 1024}, {}, {}, ""},
      {{130, 64}, {64, 131}, {130, 131}, {}, {}, ""},  // columns that the library does not take
      {{5, 17}, {17, 9}, {5, 9}, {5}, {9}, ""},
      {{3, 1, 5, 17}, {4, 17, 9}, {3, 4, 5, 9}, {3, 1, 5, 1}, {4, 1, 9}, ""},
      {{17, 5}, {9, 17}, {5, 9}, {}, {}, "transpose_a = true, transpose_b = true"},
      {{17}, {17, 9}, {9}, {}, {}, ""},
      {{5, 17}, {17}, {5}, {}, {}, ""},
      {{5, 0}, {0, 9}, {5, 9}, {}, {}, ""},
  };
  for (const Product& p : all)
    for (const char* a_type : {"u8", "i8"})
      for (bool zeros : {true, false})
        for (bool constant : {true, false}) {
          const DType at = *dtype_from_name(a_type);
          const std::string text =
              cat("graph \"g\"(%a: ", a_type, p.a, ", %b: i8", p.b,
                  zeros ? cat(", %za: ", a_type, p.za, ", %zb: i8", p.zb) : "", ") { %y = matmul(%a, %b",
                  zeros ? ", %za, %zb" : "", ") {", p.attrs, "} : i32", p.y, " return %y }");
          CAPTURE(text);
          CAPTURE(constant);
          std::vector<Tensor> in = {bytes(at, p.a, 1), bytes(DType::i8, p.b, 2)};
          if (zeros) {
            in.push_back(bytes(at, p.za, 3));
            in.push_back(p.zb.empty() && constant ? Tensor::zeros(DType::i8, {}) : bytes(DType::i8, p.zb, 4));
          }
          GpuCase(text, in, {"", {false, constant, constant, constant}, {}}).check("cuda.integer");
        }
}

TEST_CASE("products of 8-bit floats with their scales") {
  PELTON_NEEDS_GPU();
  using namespace pelton::backend::cuda;
  constexpr int64_t kM = 64, kN = 48, kK = 96;
  for (const auto& [a_type, b_type] :
       {std::pair(DType::f8e4m3fn, DType::f8e4m3fn), std::pair(DType::f8e5m2, DType::f8e4m3fn),
        std::pair(DType::f8e4m3fn, DType::f8e5m2)})
    for (const DType out : {DType::bf16, DType::f16, DType::f32}) {
      CAPTURE(name(a_type));
      CAPTURE(name(b_type));
      CAPTURE(name(out));
      const Tensor a = random(a_type, {kM, kK}, 1), b = random(b_type, {kN, kK}, 2);
      MatmulProblem p;
      p.in = a_type;
      if (b_type != a_type) p.in_b = b_type;
      p.out = out;
      p.m = kM;
      p.n = kN;
      p.k = kK;
      p.transpose_b = true;
      p.alpha = 0.125f * 3;
      const auto call = MatmulCall::make(p);
      REQUIRE(call);
      const DeviceBuffer da = upload(a, "a test"), db = upload(b, "a test"),
                         d(byte_size(out, kM * kN), "a test"), scratch(call->workspace_bytes(), "a test");
      StreamHandle stream = make_stream();
      call->run(da.get(), db.get(), nullptr, d.get(), nullptr, scratch.get(), stream.get());
      PELTON_CUDA(cudaStreamSynchronize(stream.get()));
      Tensor y(out, {kM, kN});
      PELTON_CUDA(
          cudaMemcpy(y.mutable_data(), d.get(), static_cast<size_t>(y.bytes()), cudaMemcpyDeviceToHost));
      // Sums of 96 products of at most 1 keep 14 bits or more in the tensor cores.
      const double rounding = out == DType::bf16 ? 0x1p-8 : 0x1p-11;
      double worst = 0;
      for (int64_t i = 0; i < kM; ++i)
        for (int64_t j = 0; j < kN; ++j) {
          double sum = 0, size = 0;
          for (int64_t k = 0; k < kK; ++k) {
            const double v = 0.375 * a.get_double(i * kK + k) * b.get_double(j * kK + k);
            sum += v;
            size += std::fabs(v);
          }
          worst = std::max(
              worst, std::fabs(y.get_double(i * kN + j) - sum) - size * 0x1p-11 - std::fabs(sum) * rounding);
        }
      CHECK(worst <= 0);
    }
}

TEST_CASE("quantised graphs run on the GPU alone") {
  backend::Registry registry;
  backend::register_cuda(registry);
  const ir::Graph g =
      ir::parse_graph(R"(graph "g"(%x: f32[2,8,6,6], %w: i8[16,8,3,3], %s: f32[16], %v: i8[16,4]) {
    %c = constant() {value = tensor<f32[]>{0.1}} : f32[]
    %z = constant() {value = tensor<u8[]>{3}} : u8[]
    %0 = quantize(%x, %c, %z) {to = u8} : u8[2,8,6,6]
    %1 = conv(%0, %w, _, %z) : i32[2,16,4,4]
    %2 = dequantize(%1, %s) {axis = 1} : f32[2,16,4,4]
    %3 = relu(%2) : f32[2,16,4,4]
    %4 = reduce_mean(%3) {axes = [2,3]} : f32[2,16]
    %5, %6, %7 = dynamic_quantize(%4) : u8[2,16], f32[], u8[]
    %8 = matmul(%5, %v, %7) : i32[2,4]
    %9 = dequantize(%8, %6) : f32[2,4]
    return %9
  })");
  for (const runtime::Choice& c : runtime::choose_all(g, registry, device::cuda_target(90))) {
    CAPTURE(c.implementation);
    const bool taken = c.implementation == runtime::kNothing || c.implementation == "cuda.generated" ||
                       c.implementation == "cuda.integer";
    CHECK(taken);
  }
}
