// SPDX-License-Identifier: Apache-2.0
// Sizes of inputs: the symbols that open ones get, and the numbers that the caller fixed some of them to. A
// fixed size is a number from the start, so that what nodes compute from it is known while they are read.
#pragma once

#include <map>
#include <string>

#include "onnx/import/import.h"

namespace pelton::onnx {

std::string symbol_name(std::string_view text);
// The symbol of an open size: its name in the model, else one made of the value and the axis.
std::string symbol_of(const DimView& view, std::string_view name, size_t axis);

using FixedSizes = std::map<std::string, int64_t, std::less<>>;  // by symbol
// bad_name for an input that the model does not have (naming those that it has), bad_shape for sizes that
// contradict the model or each other.
FixedSizes fixed_sizes(const GraphView& graph, const ImportOptions& options);

}  // namespace pelton::onnx
