// SPDX-License-Identifier: Apache-2.0
// The body of an inference request and of its response: JSON, optionally followed by binary tensor data.
#pragma once

#include <string>
#include <vector>

#include "serve/core/request.h"
#include "serve/core/shared_memory.h"

namespace pelton::serve {

inline constexpr size_t kBodyPadding = 64;  // readable bytes behind a body, which the JSON reader wants

// Fills inputs, outputs, id and parameters. `json_size` is the length of the JSON part; the rest of `body` is
// binary data, which the inputs refer to without a copy. bad_format, bad_type or bad_shape say what is wrong.
// `binary_default` receives the request's binary_data_output.
// Inputs in shared memory are read from `memory`.
void read_infer_request(Request& request, const Blob& body, size_t json_size, bool& binary_default,
                        const SharedMemory& memory);

// Head of the response and the binary parts behind it, in order; `json_size` is the length of the first part.
struct InferBody {
  std::vector<Blob> parts;
  size_t json_size = 0;
  bool binary = false;
};
InferBody write_infer_response(const Response& response, const std::vector<RequestedOutput>& outputs,
                               bool binary_default);

}  // namespace pelton::serve
