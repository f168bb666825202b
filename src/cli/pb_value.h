// SPDX-License-Identifier: Apache-2.0
// Values of .pb files as the runtime takes them.
#pragma once

#include <string>

#include "ir/eval.h"

namespace pelton::cli {

// TensorProto, SequenceProto or OptionalProto, as `type` asks for.
ir::HostValue load_pb(const std::string& path, const ir::Type& type);

}  // namespace pelton::cli
