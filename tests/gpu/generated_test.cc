// SPDX-License-Identifier: Apache-2.0
// Generated kernels at sizes where threads take vectors, and compiled graphs as a whole, on the GPU.
#include <doctest/doctest.h>

#include "compiler/compile.h"
#include "interp/accept.h"
#include "ir/text.h"
#include "register/registry.h"
#include "runtime/executable.h"

using namespace pelton;

namespace {

Tensor random(DType dtype, Dims dims, uint32_t seed) {
  Tensor t(dtype, dims);
  uint32_t x = seed * 2654435761u + 1;
  for (int64_t i = 0; i < t.count(); ++i) {
    x = 1664525u * x + 1013904223u;
    t.set_double(i, static_cast<double>(x >> 8) * 0x1p-23 - 1);
  }
  return t;
}

// The graph as it stands, or compiled, three times on one context; results by the acceptance rule.
void check(const std::string& text, bool compiled, const char* implementation = nullptr) {
  CAPTURE(text);
  device::Target target = find_device("cuda", 0);
  auto plan = std::make_shared<runtime::Plan>();
  ir::Graph graph = ir::parse_graph(text);
  if (compiled) {
    *plan = compiler::compile(graph, target, {}, registry());
  } else {
    plan->graph = graph;
    plan->target = target;
  }
  auto e = runtime::Executable::create(plan, registry(), target);
  for (const runtime::Choice& c : e->choices())
    if (implementation && c.implementation != runtime::kNothing) CHECK(c.implementation == implementation);
  std::vector<ir::HostValue> inputs;
  for (ir::ValueId v : graph.inputs)
    inputs.emplace_back(random(graph.type(v).dtype, *as_dims(graph.type(v).shape), v.index + 7));
  std::vector<interp::Reference> references = interp::references(graph, inputs);
  runtime::Context c = e->context();
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    std::vector<ir::HostValue> out = c.run(inputs);
    REQUIRE(out.size() == references.size());
    for (size_t i = 0; i < out.size(); ++i) CHECK(interp::judge(references[i], out[i].tensor).reason == "");
  }
}

}  // namespace

TEST_CASE("gpu: pointwise kernels in vectors, with rests, rows and scalars beside") {
  for (const char* t : {"f32", "f16", "bf16"})
    for (const char* dims : {"600,1024", "601,1023", "614401"}) {
      std::string x = cat(t, "[", dims, "]"), last(dims);
      last = last.substr(last.find(',') == last.npos ? 0 : last.find(',') + 1);
      std::string row = cat(t, "[", last, "]");
      check(cat("graph \"g\"(%x: ", x, ", %y: ", x, ", %b: ", row,
                ") {\n  %r0, %r1 = fused(%x, %y, %b) {body = graph \"pointwise\"(%0: ", x, ", %1: ", x,
                ", %2: ", row, ") {\n    %3 = add(%0, %2) : ", x, "\n    %4 = gelu(%3) : ", x,
                "\n    %5 = mul(%4, %1) : ", x, "\n    return %5, %3\n  }, kind = \"pointwise\"} : ", x, ", ",
                x, "\n  return %r0, %r1\n}"),
            false, "cuda.generated");
    }
}

TEST_CASE("gpu: rows of many lengths: softmax, norms, means") {
  for (const char* t : {"f32", "f16", "bf16"})
    for (int columns : {8, 100, 768, 1000, 3072, 5001}) {
      std::string x = cat(t, "[513,", columns, "]"), row = cat(t, "[", columns, "]"),
                  mean = cat(t, "[513,1]");
      check(cat("graph \"g\"(%x: ", x, ") {\n  %0 = softmax(%x) {axis = 1} : ", x, "\n  return %0\n}"),
            false);
      check(cat("graph \"g\"(%x: ", x, ", %s: ", row, ", %b: ", row,
                ") {\n  %0 = layer_norm(%x, %s, %b) {axis = 1, eps = 1e-5} : ", x, "\n  return %0\n}"),
            false);
      check(cat("graph \"g\"(%x: ", x, ", %s: ", row,
                ") {\n  %0 = fused(%x, %s) {body = graph \"reduce\"(%0: ", x, ", %1: ", row,
                ") {\n    %2 = mul(%0, %1) : ", x,
                "\n    %3 = reduce_mean(%2) {axes = [1], keep_dims = true} : ", mean,
                "\n    %4 = sub(%2, %3) : ", x, "\n    return %4\n  }, kind = \"reduce\"} : ", x,
                "\n  return %0\n}"),
            false, "cuda.generated");
    }
}

TEST_CASE("gpu: movement and casts") {
  check(R"(graph "g"(%x: f16[8,128,12,64]) {
  %0 = transpose(%x) {perm = [0, 2, 1, 3]} : f16[8,12,128,64]
  %1 = cast(%0) {to = f32} : f32[8,12,128,64]
  %2 = slice(%1) {axes = [2], starts = dims[8], sizes = dims[64], steps = [1]} : f32[8,12,64,64]
  return %0, %2
})",
        false, "cuda.generated");
}

TEST_CASE("gpu: products of every form, compiled with what follows them") {
  for (const char* t : {"f32", "f16", "bf16"}) {
    std::string a = cat(t, "[4,96,160]"), w = cat(t, "[160,224]"), b = cat(t, "[224]"),
                r = cat(t, "[4,96,224]");
    check(cat("graph \"g\"(%a: ", a, ", %w: ", w, ", %b: ", b, ", %r: ", r,
              ") {\n  %0 = matmul(%a, %w) : ", r, "\n  %1 = add(%0, %b) : ", r, "\n  %2 = add(%1, %r) : ", r,
              "\n  %3 = relu(%2) : ", r, "\n  return %3\n}"),
          true, "cublaslt.matmul");
    check(cat("graph \"g\"(%a: ", t, "[2,1,3,48,32], %b: ", t,
              "[5,1,48,32]) {\n  %0 = matmul(%a, %b) {transpose_b = true} : ", t,
              "[2,5,3,48,48]\n  return %0\n}"),
          true, "cublaslt.matmul");
  }
}

TEST_CASE("gpu: a small network, compiled") {
  check(R"(graph "mlp"(%x: f32[32,64], %w: f32[64,128], %b: f32[128], %v: f32[128,64]) {
  %0 = matmul(%x, %w) : f32[32,128]
  %1 = add(%0, %b) : f32[32,128]
  %2 = gelu(%1) : f32[32,128]
  %3 = matmul(%2, %v) : f32[32,64]
  %4 = add(%3, %x) : f32[32,64]
  %5 = softmax(%4) {axis = 1} : f32[32,64]
  return %5
})",
        true);
}
