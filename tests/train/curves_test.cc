// SPDX-License-Identifier: Apache-2.0
// 200 updates on the CPU follow PyTorch's losses.
#include "train/curves.h"

using namespace pelton;
using namespace pelton::test;
using Json = nlohmann::json;

// Training amplifies rounding, least in the MLP and most in MobileNetV2, whose gradients grow through 52
// batch norms.
TEST_CASE("training: 200 updates of dense models follow PyTorch's loss curve") {
  for (const Json& c : curve_cases())
    if (c["model"] == "mlp" || c["model"] == "gpt2") check_curve(c, device::detect_cpu(0));
}

TEST_CASE("training: 200 updates of convolutional models follow PyTorch's loss curve") {
  for (const Json& c : curve_cases())
    if (c["model"] == "resnet18" || c["model"] == "mobilenet_v2") check_curve(c, device::detect_cpu(0));
}

// Of every case whose curves PyTorch also has in them ("mixed": by autocast, in fp16 with a scaled loss).
TEST_CASE("training: 200 updates in bf16 and fp16 are as near to the exact curve as PyTorch's") {
  size_t compared = 0;
  for (const Json& c : curve_cases())
    if (c.contains("mixed")) compared += check_mixed(c, c["mixed"], device::detect_cpu(0));
  CHECK(compared == 5);
}
