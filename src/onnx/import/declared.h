// SPDX-License-Identifier: Apache-2.0
// What a model says of its results against what its nodes yield. As in ONNX Runtime a kind or element type
// that differs is an error, and sizes that cannot be are a warning: the graph decides.
#pragma once

#include <string_view>

#include "ir/graph.h"
#include "onnx/proto/model_view.h"

namespace pelton::onnx {

// bad_type if a value declared so cannot be of type `found`; sizes are not looked at.
void require_declared_type(const TypeView& declared, const ir::Type& found, std::string_view name);
// Warns where a declared size differs from the one found for certain.
void warn_of_declared_sizes(const TypeView& declared, const ir::Type& found, std::string_view name,
                            const SymbolRanges& ranges);

}  // namespace pelton::onnx
