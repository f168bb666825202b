// SPDX-License-Identifier: Apache-2.0
// cuDNN's plans as text: made for a GPU that is not here, read again, and made again where the text is not
// one.
#include <doctest/doctest.h>

#include <algorithm>

#include "backend/cuda/conv/cudnn_graph.h"
#include "backend/cuda/libraries.h"
#include "base/cat.h"
#include "device/artifacts.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::backend::cuda;

#define PELTON_NEEDS_CUDNN() \
  if (!missing_cudnn().empty()) PELTON_SKIP("cuDNN is not installed")

namespace {

// 3x3 on channels-last f16, which cuDNN has ready-made kernels for.
CudnnGraph convolution(const CudnnMachine& machine, int64_t images = 8) {
  CudnnGraph g(machine);
  const auto x = g.tensor(DType::f16, {images, 64, 56, 56}, {64 * 56 * 56, 1, 56 * 64, 64}),
             w = g.tensor(DType::f16, {64, 64, 3, 3}, {64 * 9, 1, 64 * 3, 64}),
             y = g.tensor(DType::f16, {images, 64, 56, 56}, {64 * 56 * 56, 1, 56 * 64, 64});
  g.convolution(x, w, y, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}, false);
  return g;
}

std::vector<std::string> names(const CudnnGraph::Plans& plans) {
  std::vector<std::string> out;
  for (const auto& p : plans) out.push_back(p->name());
  return out;
}

}  // namespace

TEST_CASE("plans of cuDNN for a GPU that is not here are kept and read again") {
  PELTON_NEEDS_CUDNN();
  std::string why;
  const std::optional<CudnnMachine> h200 = absent_cudnn_machine(device::cuda_target(90), why);
  INFO(why);
  REQUIRE(h200);
  CHECK(h200->name.find(" NVIDIA H200 132") != std::string::npos);
  const CudnnPlanWishes wishes{.only = "", .count = 4};

  device::Artifacts artifacts;
  const device::ArtifactScope scope(&artifacts);
  const size_t made = convolution(*h200).keep_plans(wishes);
  CHECK(made == 4);
  const device::Artifacts::Entries entries = artifacts.entries();
  CHECK(entries.size() == made + 1);  // and the list
  for (const auto& [name, content] : entries) {
    CHECK(name.first == "cudnn");
    CHECK(name.second.starts_with(h200->name));
    if (!name.second.ends_with(" ")) CHECK(content.find("\"operationGraph\"") != std::string::npos);
  }
  // All of them, or the one that is asked for.
  const CudnnGraph::Plans again = convolution(*h200).plans(wishes);
  CHECK(again.size() == made);
  const std::string last = again.back()->name();
  const CudnnGraph::Plans one = convolution(*h200).plans({.only = last, .count = 4});
  REQUIRE(one.size() == 1);
  CHECK(one[0]->name() == last);
  CHECK(one[0]->workspace_bytes() == again.back()->workspace_bytes());
  CHECK(artifacts.entries() == entries);

  SUBCASE("another problem and another GPU find none of them") {
    CHECK(convolution(*h200, 9).keep_plans(wishes) > 0);
    CHECK(artifacts.entries().size() > entries.size());
    CudnnMachine other = *h200;
    other.name += " x";
    convolution(other).keep_plans(wishes);
    CHECK(artifacts.entries().size() >= 2 * entries.size());
  }
  SUBCASE("a text that is no plan is not used") {
    for (const auto& [name, content] : entries)
      if (!name.second.ends_with(" "))
        artifacts.add(name.first, name.second, content.substr(0, content.size() / 2));
    CHECK(names(convolution(*h200).plans(wishes)) == names(again));
  }
}

TEST_CASE("plans of cuDNN for a GPU that is not known are left to it") {
  PELTON_NEEDS_CUDNN();
  std::string why;
  CHECK(!absent_cudnn_machine(device::cuda_target(100), why));
  CHECK(why == "the properties of a GPU of sm_100 are not known here");
}
