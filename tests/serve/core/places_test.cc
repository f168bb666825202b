// SPDX-License-Identifier: Apache-2.0
// Instance groups: where instances run, for engines that can use some GPUs or none.
#include <doctest/doctest.h>

#include "serve/core/config_node.h"
#include "serve/core/model_config.h"
#include "support/expect_error.h"

namespace pelton::serve {
namespace {

ModelConfig config(const std::string& groups, const std::vector<int>& gpus) {
  ModelConfig c =
      read_model_config(parse_config_text(cat("name: \"m\" backend: \"pelton\" input { name: \"x\" "
                                              "data_type: TYPE_FP32 dims: 1 } output { name: \"y\" "
                                              "data_type: TYPE_FP32 dims: 1 } ",
                                              groups),
                                          "m/config.pbtxt"));
  place_instances(c, gpus);
  return c;
}

// The GPUs of the instances; -1 is the CPU.
std::vector<int> places(const std::string& groups, const std::vector<int>& gpus) {
  std::vector<int> out;
  const ModelConfig c = config(groups, gpus);
  for (const InstancePlace& p : c.places) out.push_back(p.gpu);
  CHECK(c.instances == static_cast<int>(out.size()));
  return out;
}

}  // namespace

TEST_CASE("instances go where their groups say, automatic ones on every GPU there is") {
  using V = std::vector<int>;
  CHECK(places("", {}) == V{-1});
  CHECK(places("", {0, 1}) == V{0, 1});
  CHECK(places("instance_group { count: 2 }", {}) == V{-1, -1});
  CHECK(places("instance_group { kind: KIND_CPU count: 2 }", {0}) == V{-1, -1});
  CHECK(places("instance_group { kind: KIND_GPU count: 2 }", {0, 3}) == V{0, 3, 0, 3});
  CHECK(places("instance_group { kind: KIND_GPU gpus: [ 3, 0 ] }", {0, 3}) == V{3, 0});
  CHECK(places("instance_group { gpus: 3 count: 2 } instance_group { kind: KIND_CPU }", {0, 3}) ==
        V{3, 3, -1});
  CHECK(places("instance_group { kind: KIND_MODEL }", {}) == V{-1});
}

TEST_CASE("each instance on a GPU has the needs of its group") {
  const ModelConfig c = config(
      "instance_group { kind: KIND_GPU rate_limiter { resources { name: \"r\" count: 2 } } } instance_group "
      "{ "
      "kind: KIND_CPU }",
      {0, 1});
  REQUIRE(c.rate_needs.size() == 3);
  CHECK(c.rate_needs[0].resources.size() == 1);
  CHECK(c.rate_needs[1].resources.size() == 1);
  CHECK(c.rate_needs[2].resources.empty());
}

TEST_CASE("GPUs that are not there, and groups that contradict themselves, are refused") {
  using test::expect_error;
  expect_error(ErrorCode::no_device, {"asks for GPU 1, but backend 'pelton' can use: 0"},
               [] { config("instance_group { kind: KIND_GPU gpus: [ 0, 1 ] }", {0}); });
  expect_error(ErrorCode::no_device, {"asks for a GPU, but backend 'pelton' has none to use"},
               [] { config("instance_group { kind: KIND_GPU }", {}); });
  expect_error(ErrorCode::bad_format, {"of kind KIND_CPU lists gpus"},
               [] { config("instance_group { kind: KIND_CPU gpus: 0 }", {0}); });
  expect_error(ErrorCode::limit, {"asks for 300 instances, at most 256"},
               [] { config("instance_group { count: 300 }", {}); });
  expect_error(ErrorCode::limit, {"asks for 260 instances, at most 256"}, [] {
    config("instance_group { kind: KIND_GPU count: 130 }", {0, 1});
  });
}

}  // namespace pelton::serve
