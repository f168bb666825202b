// SPDX-License-Identifier: Apache-2.0
// What really works where a kernel hands its node on.
#pragma once

#include <string_view>

#include "backend/kernel.h"

namespace pelton::backend {

// Also a base of kernels that an implementation makes in place of its own when its library has no fast code
// at the sizes of the instance. Reports and traces name ran_by().
class HandedOn {
 public:
  virtual std::string_view ran_by() const = 0;

 protected:
  ~HandedOn() = default;
};

// `otherwise`: the implementation that prepared the kernel.
inline std::string_view ran_by(const Kernel* kernel, std::string_view otherwise) {
  const auto* handed = dynamic_cast<const HandedOn*>(kernel);
  return handed ? handed->ran_by() : otherwise;
}

}  // namespace pelton::backend
