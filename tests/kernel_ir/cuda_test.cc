// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdlib>

#include "base/file.h"
#include "codegen/cuda_emit.h"
#include "codegen/lower.h"
#include "kernel_ir/groups.h"
#include "support/skip.h"
#include "support/temp_dir.h"

using namespace pelton;
using namespace pelton::codegen;

namespace {

codegen::Kernel kernel_of(const std::string& name, const std::string& text) {
  Lowered lowered = lower(ir::parse_graph(text), name);
  INFO(lowered.reason);
  REQUIRE(lowered.kernel);
  return *lowered.kernel;
}

}  // namespace

TEST_CASE("elements are shared out among all threads, rows among blocks") {
  CudaKernel flat = emit_cuda(kernel_of("flat", R"(graph "g"(%x: f32[N,4], %b: f32[4]) {
    symbol N in [0, 9]
    %0 = add(%x, %b) : f32[N,4]
    return %0
  })"));
  CHECK(flat.entry == "k_flat");
  CHECK(flat.block == 256);
  CHECK(flat.blocks.eval({{"N", 100}}) == 2);
  CHECK(flat.text.find(
            "const float* __restrict__ x0, const float* __restrict__ x1, float* __restrict__ y0, int n0") !=
        flat.text.npos);
  CHECK(flat.text.find("x0[i0]") != flat.text.npos);  // digits of the index cancel to the flat position
  CHECK(flat.text.find("x1[-4*k_floordiv(i0, 4) + i0]") != flat.text.npos);

  CudaKernel vectors = emit_cuda(kernel_of("vectors", R"(graph "g"(%x: f32[N]) {
    symbol N in [0, 9]
    %0 = exp(%x) : f32[N]
    return %0
  })"),
                                 {.block = 128, .vector = 4});
  CHECK(vectors.blocks.eval({{"N", 1025}}) == 3);
  CHECK(vectors.text.find("x0 = (const float*)__builtin_assume_aligned(x0, 16);") != vectors.text.npos);
  CHECK(vectors.text.find("for (int i0 = i0_whole * 4 +") != vectors.text.npos);  // what is left over

  // The count of whole vectors where the length is a sum.
  CudaKernel sum = emit_cuda(kernel_of("sum", R"(graph "g"(%x: f16[N+M]) {
    symbol N in [0, 9]
    symbol M in [0, 9]
    %0 = exp(%x) : f16[N+M]
    return %0
  })"),
                             {.vector = 8});
  CHECK(sum.text.find("const int i0_whole = (n0 + n1) / 8;") != sum.text.npos);
  CHECK(sum.text.find("*(const k_vector<unsigned short, 8>*)(x0 + (8*t))") != sum.text.npos);
  CHECK(sum.text.find("*(k_vector<unsigned short, 8>*)(y0 + (8*t)) = ") != sum.text.npos);

  codegen::Kernel softmax = kernel_of("softmax", R"(graph "g"(%x: bf16[N,1000]) {
    symbol N in [0, 9]
    %0 = softmax(%x) : bf16[N,1000]
    return %0
  })");
  CudaKernel rows = emit_cuda(softmax);
  CHECK(rows.block == 256);
  CHECK(rows.blocks.eval({{"N", 7}}) == 7);
  CHECK(rows.text.find("k_block_reduce(v") != rows.text.npos);
  CudaKernel wide_rows = emit_cuda(softmax, {.vector = 8});
  CHECK(wide_rows.text.find("i1_t < 125") != wide_rows.text.npos);
  CudaKernel warps = emit_cuda(kernel_of("warps", R"(graph "g"(%x: f32[N,60]) {
    symbol N in [0, 9]
    %0 = reduce_sum(%x) {axes = [1]} : f32[N]
    return %0
  })"));
  CHECK(warps.blocks.eval({{"N", 9}}) == 2);  // eight rows a block
  CHECK(warps.text.find("k_warp_reduce(v") != warps.text.npos);
  CHECK(warps.text.find("if ((threadIdx.x & 31) == 0) y0[i0]") != warps.text.npos);
  CHECK(emit_cuda(softmax, {.block = 64, .wide_index = true}).text.find("k_s64 n0") != std::string::npos);
}

TEST_CASE("1 + erf of results in 16 bits is one function, of wider ones the two") {
  const auto text = [](const char* type) {
    std::string graph = R"(graph "g"(%x: T[8]) {
    %0 = cast(%x) {to = f32} : f32[8]
    %1 = erf(%0) : f32[8]
    %2 = constant() {value = tensor<f32[]>{1}} : f32[]
    %3 = add(%2, %1) : f32[8]
    %4 = mul(%3, %0) : f32[8]
    %5 = cast(%4) {to = T} : T[8]
    return %5
  })";
    for (size_t at; (at = graph.find('T')) != graph.npos;) graph.replace(at, 1, type);
    return emit_cuda(kernel_of("gelu", graph)).text;
  };
  for (const char* type : {"f16", "bf16"}) {
    CHECK(text(type).find("= k_fast_one_plus_erf(v") != std::string::npos);
  }
  CHECK(text("f32").find("k_fast_") == std::string::npos);
  CHECK(text("f32").find("= k_erf(v") != std::string::npos);
}

TEST_CASE("integers as literals, the lowest too") {
  const std::string text = emit_cuda(kernel_of("low", R"(graph "g"(%x: i64[4]) {
    %0 = constant() {value = tensor<i64[]>{-9223372036854775808}} : i64[]
    %1 = constant() {value = tensor<i64[]>{-9223372036854775807}} : i64[]
    %2 = add(%x, %0) : i64[4]
    %3 = mul(%2, %1) : i64[4]
    return %3
  })"))
                               .text;
  CHECK(text.find("= (-9223372036854775807LL - 1);") != text.npos);
  CHECK(text.find("= (k_s64)-9223372036854775807LL;") != text.npos);
}

TEST_CASE("the text of every group compiles") {
  if (std::system("nvcc --version > /dev/null 2>&1") != 0) PELTON_SKIP("nvcc is not installed");
  std::string text(cuda_prelude());
  for (const test::Group& group : test::groups()) {
    codegen::Kernel k = kernel_of(group.name, group.text);
    append(text, emit_cuda(k).text);
    if (group.single_op) continue;
    k.name += "_wide";
    append(text, emit_cuda(k, {.wide_index = true, .vector = 4}).text);
  }
  test::TempDir dir;
  write_file(dir / "kernels.cu", text);
  std::string command = cat("nvcc -std=c++17 -arch=sm_80 --Werror all-warnings -ptx -o ", dir / "kernels.ptx",
                            " ", dir / "kernels.cu", " > ", dir / "log", " 2>&1");
  int status = std::system(command.c_str());
  std::string log = read_file(dir / "log");
  CAPTURE(log);
  CHECK(status == 0);
}
