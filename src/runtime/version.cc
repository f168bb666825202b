// SPDX-License-Identifier: Apache-2.0
#include "runtime/version.h"

namespace pelton {

std::string_view version() {
  return PELTON_VERSION;
}

}  // namespace pelton
