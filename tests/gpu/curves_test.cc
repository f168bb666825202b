// SPDX-License-Identifier: Apache-2.0
// 200 updates on the GPU follow PyTorch's losses: in f32 by the rule of the CPU's curves, in bf16 and fp16
// beside PyTorch's autocast on a GPU ("mixed_cuda", of its two layouts the further).
#include "train/curves.h"

using namespace pelton;
using namespace pelton::test;

TEST_CASE("gpu: 200 updates follow PyTorch's loss curve") {
  const device::Target target = find_device("cuda", 0);
  for (const nlohmann::json& c : curve_cases()) check_curve(c, target);
}

TEST_CASE("gpu: 200 updates in bf16 and fp16 are as near to the exact curve as PyTorch's") {
  const device::Target target = find_device("cuda", 0);
  size_t compared = 0;
  for (const nlohmann::json& c : curve_cases()) compared += check_mixed(c, c.at("mixed_cuda"), target);
  CHECK(compared == 8);
}
