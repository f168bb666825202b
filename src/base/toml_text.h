// SPDX-License-Identifier: Apache-2.0
// A look at a TOML text before the library parses it. toml++ 3.3 answers two kinds of wrong text with undefined behaviour
// instead of an error: characters beyond ASCII where a key or a value belongs, and table headers that do not begin with a key.
#pragma once

#include <string_view>

namespace pelton {

// Fails with bad_format at `where` and the line if `text` holds one of the two, or nests deeper than 64 brackets.
void check_toml_text(std::string_view text, std::string_view where);

}  // namespace pelton
