// SPDX-License-Identifier: Apache-2.0
// Generated kernels in the form that groups of other sizes share, as plans of many groups have them.
#include <doctest/doctest.h>

#include "backend/cuda/harness.h"
#include "backend/cuda/implementations.h"
#include "base/cat.h"
#include "device/artifacts.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::test;

TEST_CASE("generated kernels whose text groups of other sizes share") {
  PELTON_NEEDS_GPU();
  device::Artifacts artifacts;
  const device::ArtifactScope scope(&artifacts);
  backend::cuda::share_texts();
  for (const char* t : {"f32", "f16"})
    for (const Dims& d : {Dims{4, 24, 16, 40}, Dims{2, 8, 24, 56}, Dims{3, 5, 7, 11}, Dims{64, 24, 64, 48}}) {
      const std::string x = cat(t, d), row = cat(t, Dims{1, d[1], 1, 1}),
                        mean = cat(t, Dims{d[0], d[1], d[2], 1});
      const DType type = *dtype_from_name(t);
      GpuCase("graph \"g\"(%x: " + x + ", %b: " + row + ") { %c = constant() {value = tensor<" + t +
                  "[]>{0.5}} : " + t + "[] %0 = add(%x, %b) : " + x + " %1 = mul(%0, %c) : " + x +
                  " %2 = relu(%1) : " + x + " return %2 }",
              {random(type, d, 1), random(type, {1, d[1], 1, 1}, 2)}, {.group = "pointwise"})
          .check("cuda.generated");
      GpuCase("graph \"g\"(%x: " + x + ") { %0 = mul(%x, %x) : " + x +
                  " %1 = reduce_mean(%0) {axes = [3], keep_dims = true} : " + mean +
                  " %2 = sub(%x, %1) : " + x + " return %2 }",
              {random(type, d, 3)}, {.group = "reduce"})
          .check("cuda.generated");
      GpuCase("graph \"g\"(%x: " + x + ") { %0 = transpose(%x) {perm = [0, 2, 3, 1]} : " + t +
                  cat(Dims{d[0], d[2], d[3], d[1]}) + " return %0 }",
              {random(type, d, 4)})
          .check("cuda.generated");
    }
  size_t kernels = 0;
  for (const auto& [name, content] : artifacts.entries()) kernels += name.first == "kernels";
  CHECK(kernels < 24);  // of as many groups
}
