// SPDX-License-Identifier: Apache-2.0
// The elements of a tensor as a JSON list. As json_reader.h, for sources alone.
#pragma once

#include <simdjson.h>

#include <string>

#include "serve/core/request.h"

namespace pelton::serve {

// Appends the elements of `list`, nested or not, to `out` in the wire layout of `tensor`'s type; how many
// there are. bad_type names the first that does not fit.
int64_t read_elements(const TensorValue& tensor, simdjson::dom::element list, std::string& out);

// Appends the tensor's elements as a flat list. Fails on what JSON cannot carry.
void append_elements(std::string& out, const TensorValue& tensor);

void append_escaped(std::string& out, std::string_view text);  // as a JSON string

}  // namespace pelton::serve
