// SPDX-License-Identifier: Apache-2.0
// Many tensors in one launch: updates and sums against the interpreter.
#include <doctest/doctest.h>

#include "backend/cuda/harness.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/libraries.h"
#include "base/cat.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::test;

namespace {

// A body of as many segments as there are shapes: momentum in f32, the parameter and its lower form, with a
// rate of its own for each segment and a factor that all share.
struct Updates {
  std::string text;
  std::vector<Tensor> inputs;

  explicit Updates(const std::vector<Dims>& shapes) {
    std::string in = "%f: f32[]", body, results;
    inputs.push_back(from_doubles(DType::f32, {}, {0.875}));
    for (size_t i = 0; i < shapes.size(); ++i) {
      const std::string t = cat("f32", shapes[i]), low = cat("bf16", shapes[i]);
      append(in, cat(", %w", i, ": ", t, ", %m", i, ": ", t, ", %g", i, ": ", low, ", %r", i, ": f32[]"));
      for (uint64_t k = 0; k < 3; ++k)
        inputs.push_back(random(k == 2 ? DType::bf16 : DType::f32, shapes[i], 10 * i + k));
      inputs.push_back(from_doubles(DType::f32, {}, {0.125 * static_cast<double>(i + 1)}));
      append(body, cat("%c", i, " = constant() {value = tensor<f32[]>{0.5}} : f32[] "));
      append(body, cat("%a", i, " = cast(%g", i, ") {to = f32} : ", t, " %b", i, " = mul(%m", i,
                       ", %f) : ", t, " "));
      append(body, cat("%n", i, " = add(%b", i, ", %a", i, ") : ", t, " %d", i, " = mul(%n", i, ", %c", i,
                       ") : ", t, " "));
      append(body, cat("%e", i, " = mul(%d", i, ", %r", i, ") : ", t, " %p", i, " = sub(%w", i, ", %e", i,
                       ") : ", t, " "));
      append(body, cat("%l", i, " = cast(%p", i, ") {to = bf16} : ", low, " "));
      append(results, cat(i ? ", " : "", "%n", i, ", %p", i, ", %l", i));
    }
    text = cat("graph \"g\"(", in, ") { ", body, "return ", results, " }");
  }
};

const std::vector<Dims> kShapes = {{64, 3, 3, 3}, {64}, {1}, {1000, 77}, {8192}, {8193}, {3, 1, 5}};

struct Sums {
  std::string text;
  std::vector<Tensor> inputs;

  explicit Sums(const std::vector<Dims>& shapes) {
    std::string in = "%f: f32[]", body, results;
    inputs.push_back(from_doubles(DType::f32, {}, {0.875}));
    for (size_t i = 0; i < shapes.size(); ++i) {
      const std::string t = cat("f32", shapes[i]);
      std::string axes;
      for (size_t a = 0; a < shapes[i].size(); ++a) append(axes, cat(a ? ", " : "", a));
      append(in, cat(", %x", i, ": ", t));
      inputs.push_back(random(DType::f32, shapes[i], i));
      append(body, cat("%a", i, " = mul(%x", i, ", %f) : ", t, " %b", i, " = square(%a", i, ") : ", t, " "));
      append(body, cat("%s", i, " = reduce_sum(%b", i, ") {axes = [", axes, "]} : f32[] "));
      append(results, cat(i ? ", " : "", "%s", i));
    }
    text = cat("graph \"g\"(", in, ") { ", body, "return ", results, " }");
  }
};

GpuCase updates(const std::vector<Dims>& shapes) {
  Updates u(shapes);
  return {u.text, u.inputs, {.group = "segments", .segments = static_cast<int64_t>(shapes.size())}};
}
GpuCase sums(const std::vector<Dims>& shapes) {
  Sums s(shapes);
  return {s.text, s.inputs, {.group = "segment_sums", .segments = static_cast<int64_t>(shapes.size())}};
}

}  // namespace

TEST_CASE("segments: updates and sums of many tensors in one launch") {
  PELTON_NEEDS_GPU();
  updates(kShapes).check("cuda.segments");
  sums(kShapes).check("cuda.segments");
  // More than the parameters of one launch hold.
  std::vector<Dims> many;
  for (int64_t i = 0; i < 700; ++i) many.push_back({1 + i * 7 % 300, 1 + i % 5});
  updates(many).check("cuda.segments");
  sums(many).check("cuda.segments");
}

TEST_CASE("segments: what is not alike is refused") {
  CHECK(updates(kShapes).refusal("cuda.segments") == "");
  CHECK(updates(kShapes).refusal("cuda.generated") == "is many tensors at once");
  Updates u({{4}, {6}});
  u.text.replace(u.text.rfind("sub("), 4, "add(");
  CHECK(GpuCase(u.text, u.inputs, {.group = "segments", .segments = 2}).refusal("cuda.segments") ==
        "is another kind of group");
  Updates odd({{4}, {6}, {8}});
  CHECK(GpuCase(odd.text, odd.inputs, {.group = "segments", .segments = 2}).refusal("cuda.segments") ==
        "is another kind of group");
}

TEST_CASE("segments: the text compiles without a GPU") {
  if (!backend::cuda::missing_nvrtc().empty()) PELTON_SKIP("NVRTC is not installed");
  device::Target target = device::cuda_target(90);
  backend::cuda::compile_segments(updates(kShapes).instance(), target);
  backend::cuda::compile_segments(sums(kShapes).instance(), target);
}
