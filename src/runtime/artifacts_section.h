// SPDX-License-Identifier: Apache-2.0
// Section "artifacts" of plan files: what back ends made and need not make again (docs/formats.md).
#pragma once

#include <string>
#include <string_view>

#include "device/artifacts.h"

namespace pelton::runtime {

std::string artifacts_bytes(const device::Artifacts& artifacts);
// bad_format for bytes that are cut off or have more behind the last entry.
device::Artifacts::Entries read_artifacts(std::string_view bytes);

}  // namespace pelton::runtime
