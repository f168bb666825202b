// SPDX-License-Identifier: Apache-2.0
// Content codings gzip and deflate.
#pragma once

#include <string_view>
#include <vector>

#include "serve/core/blob.h"

namespace pelton::serve {

enum class Coding { identity, gzip, deflate };

// A Content-Encoding header; bad_format names a coding that is not supported.
Coding coding_of(std::string_view content_encoding);
// The coding to answer with, by an Accept-Encoding header.
Coding accepted_coding(std::string_view accept_encoding);
// `limit` error once the result exceeds max_bytes; the result has `padding` readable bytes behind it.
Blob decompress(const Blob& body, Coding coding, size_t max_bytes, size_t padding);
Blob compress(const std::vector<Blob>& parts, Coding coding);

}  // namespace pelton::serve
