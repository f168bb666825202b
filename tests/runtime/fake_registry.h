// SPDX-License-Identifier: Apache-2.0
// What plans in the tests of devices choose from: every op on the fake device, a few on the host.
#pragma once

#include "runtime/fake_device.h"
#include "runtime/test_kernels.h"

namespace pelton::test {

inline const backend::Registry& fake_registry() {
  static const backend::Registry* r = [] {
    auto* made = new backend::Registry;
    add_fake_kernels(*made);
    add_test_kernels(*made);
    return made;
  }();
  return *r;
}

}  // namespace pelton::test
