// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/train/product_gradient.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <optional>

#include "backend/cuda/harness.h"
#include "backend/cuda/matmul_call.h"
#include "base/cat.h"
#include "device/artifacts.h"
#include "ir/gradient.h"
#include "ir/text.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::test;

namespace {

constexpr const char* kName = "cuda.product_gradient";

// Gradients of weights and bias of a layer whose weights lie [out, in] if `transposed`, else [in, out].
GpuCase layer(DType t, bool transposed, int64_t rows, int64_t in, int64_t out) {
  const Dims x{rows, in}, g{rows, out}, w = transposed ? Dims{out, in} : Dims{in, out};
  const bool wide = t == DType::f32;
  const std::string type(name(t));
  const std::string text =
      cat("graph \"g\"(%x: ", type, x, ", %g: ", type, g, ") { ",
          wide ? "" : cat("%c = cast(%g) {to = f32} : f32", g, " "), "%b = reduce_sum(", wide ? "%g" : "%c",
          ") {axes = [0]} : f32", Dims{out}, " %w = matmul(", transposed ? "%g, %x" : "%x, %g",
          ") {transpose_a = true} : ", type, w, " return %b, %w }");
  return {text, {random(t, x, 1), random(t, g, 2)}, {"product_gradient", {}, {}}};
}

// The gradient of a layer's data behind a ReLU's.
GpuCase relu(DType t, const Dims& g, const Dims& weights, const Dims& y, std::optional<double> first = {}) {
  const std::string type(name(t));
  const std::string text = cat("graph \"g\"(%g: ", type, g, ", %w: ", type, weights, ", %y: ", type, y,
                               ") { %d = matmul(%g, %w) : ", type, y, " %0 = constant() {value = tensor<",
                               type, "[]>{0}} : ", type, "[]", " %p = gt(%y, %0) : bool", y,
                               " %r = select(%p, %d, %0) : ", type, y, " return %r }");
  Tensor gradient = random(t, g, 1);
  if (first) gradient.set_double(0, *first);
  return {text, {gradient, random(t, weights, 2), random(t, y, 3)}, {"product_gradient", {}, {}}};
}

// The gradient of a layer's data behind that of gelu's tanh form, as steps in 16 bits have it.
GpuCase gelu(DType t, int64_t rows, int64_t in, int64_t out) {
  ir::Graph g;
  ir::Builder b(g);
  auto input = [&](int64_t m, int64_t n) { return g.add_input(ir::Type::tensor(t, {m, n})); };
  const ir::ValueId gradient = input(rows, in), weights = input(in, out), x = input(rows, out);
  const ir::ValueId product = b.cast(b.matmul(gradient, weights), DType::f32);
  const ir::ValueId y = b.op("gelu", {b.cast(x, DType::f32)}, {{"tanh", true}});
  ir::GradientContext c(g, g[y].producer, {product}, {true});
  g[g[y].producer].op->gradient(c);
  g.add_output(b.cast(c.input_grads()[0], t));
  g.remove(g[y].producer);
  return {ir::print(g),
          {random(t, {rows, in}, 1), random(t, {in, out}, 2), random(t, {rows, out}, 3, -4, 4)},
          {"product_gradient", {}, {}}};
}

backend::cuda::ProductGradient parsed(const GpuCase& c) {
  return backend::cuda::product_gradient_of(c.instance().graph, c.instance().id);
}

}  // namespace

TEST_CASE("gradients of products: what a group holds") {
  for (bool transposed : {false, true}) {
    const GpuCase c = layer(DType::bf16, transposed, 6, 4, 5);
    const auto p = parsed(c);
    CHECK(p.reason == "");
    CHECK(p.sums_a == transposed);
    CHECK(p.a == (transposed ? 1 : 0));
    CHECK(p.b == (transposed ? 0 : 1));
    CHECK(p.sum_output == 0);
    CHECK(p.product_output == 1);
    CHECK(!p.gate);
    CHECK(c.refusal(kName) == "");
  }
  const GpuCase c = relu(DType::f32, {2, 3, 5}, {5, 4}, {2, 3, 4});
  const auto p = parsed(c);
  CHECK(p.reason == "");
  CHECK(p.gate == ir::ActivationGradient::relu);
  CHECK(p.x == 2);
  CHECK(c.refusal(kName) == "");
  const GpuCase smooth = gelu(DType::bf16, 6, 5, 4);
  CHECK(parsed(smooth).reason == "");
  CHECK(parsed(smooth).gate == ir::ActivationGradient::gelu_tanh);
  CHECK(smooth.refusal(kName) == "");
  CHECK(gelu(DType::f32, 6, 5, 4).refusal(kName) == "the library's GELU is less exact than f32");
}

TEST_CASE("gradients of products: other groups are refused") {
  const char* kColumns = R"(graph "g"(%x: f32[6,4], %g: f32[6,5]) {
    %b = reduce_sum(%g) {axes = [1]} : f32[6]
    %w = matmul(%x, %g) {transpose_a = true} : f32[4,5]
    return %b, %w
  })";
  const GpuCase columns(kColumns, {random(DType::f32, {6, 4}, 1), random(DType::f32, {6, 5}, 2)},
                        {"product_gradient", {}, {}});
  CHECK(columns.refusal(kName) == "sums up something else than rows of what its product does");
  const char* kForward = R"(graph "g"(%g: f32[6,5], %w: f32[5,4]) {
    %d = matmul(%g, %w) : f32[6,4]
    %r = relu(%d) : f32[6,4]
    return %r
  })";
  const GpuCase forward(kForward, {random(DType::f32, {6, 5}, 1), random(DType::f32, {5, 4}, 2)},
                        {"product_gradient", {}, {}});
  CHECK(forward.refusal(kName) == "does more than an activation's gradient");
  CHECK(relu(DType::f64, {6, 5}, {5, 4}, {6, 4}).refusal(kName) == "needs f32, f16 or bf16, got f64");
  CHECK(relu(DType::f32, {2, 3, 5}, {2, 5, 4}, {2, 3, 4}).refusal(kName) ==
        "needs one matrix on the right for all on the left");
}

TEST_CASE("gradients of products: a tactic's key tells every form apart") {
  using backend::cuda::MatmulProblem;
  MatmulProblem p;
  p.m = p.n = p.k = 8;
  std::vector<std::string> keys{p.key()};
  p.gradient_of = backend::cuda::Activation::relu;
  keys.push_back(p.key());
  p.gradient_of = backend::cuda::Activation::gelu_tanh;
  keys.push_back(p.key());
  p.gradient_of = backend::cuda::Activation::none;
  for (auto sums : {MatmulProblem::Sums::of_a, MatmulProblem::Sums::of_b})
    for (DType t : {DType::f32, DType::bf16}) {
      p.sums = sums;
      p.sums_type = t;
      keys.push_back(p.key());
    }
  for (size_t i = 0; i < keys.size(); ++i)
    for (size_t j = 0; j < i; ++j) CHECK(keys[i] != keys[j]);
  CHECK(backend::cuda::mask_pitch(1) == 128);
  CHECK(backend::cuda::mask_pitch(128) == 128);
  CHECK(backend::cuda::mask_pitch(129) == 256);
}

TEST_CASE("gradients of products on the GPU: weights with biases, data behind activations") {
  PELTON_NEEDS_GPU();
  for (DType t : {DType::f32, DType::f16, DType::bf16}) {
    CAPTURE(name(t));
    for (bool transposed : {false, true})
      for (const auto& [rows, in, out] :
           {std::array<int64_t, 3>{256, 64, 128}, {33, 7, 5}, {1, 1, 1}, {0, 4, 8}, {1024, 768, 256}})
        layer(t, transposed, rows, in, out).check(kName);
    relu(t, {64, 96}, {96, 256}, {64, 256}).check(kName);
    relu(t, {2, 3, 5}, {5, 7}, {2, 3, 7}).check(kName);
    relu(t, {3, 0}, {0, 8}, {3, 8}).check(kName);
    if (t == DType::f32) continue;
    gelu(t, 64, 96, 256).check(kName);
    gelu(t, 33, 8, 7).check(kName);
  }
}

TEST_CASE("NaN goes through the gradient of an activation behind a product") {
  PELTON_NEEDS_GPU();
  for (const DType t : {DType::f16, DType::bf16, DType::f32})
    for (const bool by_timing : {true, false}) {
      const device::ArtifactScope scope(nullptr, by_timing);
      relu(t, {256, 64}, {64, 128}, {256, 128}, NAN).check(kName);
    }
}
