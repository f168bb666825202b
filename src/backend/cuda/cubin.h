// SPDX-License-Identifier: Apache-2.0
// Whether bytes that come from a file can be handed to the driver as a cubin, which is an ELF file: its
// loader takes no size and reads what the tables of the file name.
#pragma once

#include <string>
#include <string_view>

namespace pelton::backend::cuda {

// "", or what is wrong: not such a file, or a table or section that reaches behind the end.
std::string why_no_cubin(std::string_view bytes);

}  // namespace pelton::backend::cuda
