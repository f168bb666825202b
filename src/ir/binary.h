// SPDX-License-Identifier: Apache-2.0
// The binary form of graphs, for files. docs/formats.md has the layout.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "ir/graph.h"

namespace pelton::ir {

inline constexpr uint64_t kBinaryVersion = 1;
// Tensors up to this size stand in the form itself; larger ones are blobs.
inline constexpr int64_t kInlineTensorBytes = 64;

// `store` keeps the bytes of a tensor and returns the number of their blob.
std::string to_binary(const Graph& graph, FunctionRef<uint64_t(const Tensor&)> store);

// `fetch` gives a tensor of this type from a blob; it refuses a blob of another size. Anything that does not
// read as a sound graph is bad_format; a version or op from the future is unsupported_version. Types are
// inferred again, so what is returned is as good as a verified graph.
Graph from_binary(std::string_view bytes,
                  FunctionRef<Tensor(uint64_t blob, DType dtype, const Dims& dims)> fetch);

}  // namespace pelton::ir
